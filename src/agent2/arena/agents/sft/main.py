"""Post-trains the base model by imitation: of the answers of the train rows, or of an expert in the train games."""

from agent2.training.agent_main import start_recipe

if __name__ == "__main__":
    start_recipe("sft", ("question", "household"))
