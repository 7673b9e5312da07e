"""Post-trains the base model by reinforcement learning, on prompts with a verifier or on games that it plays."""

from agent2.training.agent_main import start_recipe

if __name__ == "__main__":
    start_recipe("grpo", ("question", "household"))
