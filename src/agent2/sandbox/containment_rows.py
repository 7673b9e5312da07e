"""The rows of the report on containment that all back ends share."""

from agent2.sandbox.spec import HOME, Containment, Limits, Network, Strength


def common_rows(
    limits: Limits, network: Network, gpus: tuple[int, ...], disk: Containment | None = None
) -> list[Containment]:
    """Network, environment, disk, file size, descriptors, and GPUs if there are any."""
    in_memory = f"/tmp, {HOME} and /dev/shm: {limits.tmp_gib:g} GiB each, hard"
    soft = Containment("disk", Strength.SOFT, f"watchdog at {limits.disk_gib:g} GiB of workspace; {in_memory}")
    rows = [
        network_row(network),
        Containment("environment", Strength.HARD, "cleared; allow-list"),
        disk or soft,
        Containment("file size", Strength.HARD, f"RLIMIT_FSIZE {limits.file_size_gib:g} GiB"),
        Containment("descriptors", Strength.HARD, f"RLIMIT_NOFILE {limits.open_files} a process"),
    ]
    if gpus:
        named = ", ".join(map(str, gpus))
        rows.append(Containment("GPUs", Strength.HARD, f"device files of {named} only; their memory is not limited"))
    return rows


def network_row(network: Network) -> Containment:
    """What a policy promises."""
    if network is Network.PACKAGES:
        how = "network namespace; beside the listed ports, a proxy reads allowed package registries and records it"
        return Containment("network", Strength.HARD, how)
    if network is Network.OPEN:
        how = "open: any public host through a proxy that records hosts, not contents; answers may have come from there"
        return Containment("network", Strength.NONE, how)
    return Containment("network", Strength.HARD, "network namespace; only the listed ports lead out")
