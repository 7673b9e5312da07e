"""Post-trains the base model by reinforcement learning, on questions with a verifier or on episodes that it plays."""

from agent2.training.participant import start_recipe

if __name__ == "__main__":
    start_recipe(question="question.py", episodes="episodes.py")
