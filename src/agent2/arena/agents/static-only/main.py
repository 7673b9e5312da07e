"""Post-trains the base model on the visible rows alone: for a task whose lesson is that this is not enough."""

from agent2.training.agent_main import start_recipe

if __name__ == "__main__":
    start_recipe("static-only", ("household",))
