"""Post-trains the base model in two stages: imitation of an expert, then reinforcement learning on games it plays."""

from agent2.training.agent_main import run_recipe

if __name__ == "__main__":
    run_recipe("sft-grpo", ("household",))
