"""Post-trains the base model in two stages: imitation of an expert, then reinforcement learning on games it plays."""

from agent2.training.agent_main import start_recipe

if __name__ == "__main__":
    start_recipe("sft-grpo", ("household",))
