"""Post-trains the base model by reinforcement learning, on prompts with a verifier or on games that it plays."""

from agent2.training.agent_main import run_recipe

if __name__ == "__main__":
    run_recipe("grpo", ("question", "household"))
