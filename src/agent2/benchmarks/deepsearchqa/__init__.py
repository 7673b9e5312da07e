"""The home of `deepsearchqa`: published questions that take several searches, judged part by part."""
