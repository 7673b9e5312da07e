import numpy as np
import torch

from agent2.models.slots import MIN_COLUMNS, SlotCache, SlotSwap

HEADS, SIZE = 2, 3


def tokens(n: int, t: int, start: float = 0) -> torch.Tensor:
    """n x H x T x D, every number another one."""
    return torch.arange(n * HEADS * t * SIZE, dtype=torch.float32).reshape(n, HEADS, t, SIZE) + start + 1


def make_cache(rows: int = 3, columns: int = 8) -> SlotCache:
    cache = SlotCache(n_layers=1, device=torch.device("cpu"))
    cache.reserve(rows, columns)
    return cache


def fill(cache: SlotCache, lengths: list[int], first_row: int = 0) -> torch.Tensor:
    keys = tokens(len(lengths), max(lengths), start=100 * first_row)
    cache.begin_prefill(first_row + np.arange(len(lengths)), np.array(lengths))
    visible, _ = cache.update(keys, -keys, 0)
    assert visible is keys
    return keys


def stored(cache: SlotCache, row: int) -> torch.Tensor:
    """H x C x D"""
    return cache.layers[0].keys[row].transpose(0, 1)


def test_prompts_padded_on_the_left_are_stored_from_the_left():
    cache = make_cache()
    keys = fill(cache, [4, 2])
    assert torch.equal(stored(cache, 0)[:, :4], keys[0])
    assert torch.equal(stored(cache, 1)[:, :2], keys[1, :, 2:])
    assert not stored(cache, 1)[:, 2:].any()
    assert torch.equal(cache.layers[0].values, -cache.layers[0].keys)


def test_each_row_writes_at_its_own_position_and_sees_the_span():
    cache = make_cache()
    keys = fill(cache, [4, 2])
    cache.begin_decode(np.array([4, 2]))
    new = tokens(2, 1, start=1000)
    visible, _ = cache.update(new, new, 0)
    assert visible.shape == (2, HEADS, 5, SIZE)
    assert torch.equal(visible[0], torch.cat((keys[0], new[0]), dim=1))
    assert torch.equal(visible[1, :, :3], torch.cat((keys[1, :, 2:], new[1]), dim=1))
    assert (cache.get_seq_length(), cache.get_mask_sizes(1, 0)) == (4, (5, 0))


def test_growing_keeps_what_is_stored():
    cache = make_cache(rows=1, columns=4)
    keys = fill(cache, [4])
    assert cache.n_columns == MIN_COLUMNS
    cache.reserve(5, MIN_COLUMNS + 1)
    assert cache.n_rows >= 5 and cache.n_columns > MIN_COLUMNS
    assert torch.equal(stored(cache, 0)[:, :4], keys[0])
    assert torch.isfinite(cache.layers[0].keys).all()
    later = fill(cache, [3], first_row=4)
    assert torch.equal(stored(cache, 4)[:, :3], later[0])


def test_a_slot_is_moved_and_cleared():
    cache = make_cache()
    keys = fill(cache, [2, 2, 4])
    cache.move(2, 0, length=4)
    assert torch.equal(stored(cache, 0)[:, :4], keys[2])
    assert torch.equal(stored(cache, 1)[:, :2], keys[1, :, 2:])
    cache.clear(1)
    assert not cache.layers[0].keys[1].any() and not cache.layers[0].values[1].any()
    assert cache.layers[0].keys[2].any()


def test_more_tokens_are_written_behind_what_is_kept_of_any_slots_and_see_only_their_own_slot():
    cache = make_cache(rows=4)
    keys = fill(cache, [4, 4, 4, 4])
    cache.begin_extend(np.array([3, 0]), np.array([4, 2]), np.array([1, 3]))
    new = tokens(2, 3, start=1000)
    visible, _ = cache.update(new, new, 0)
    assert visible.shape == (2, HEADS, 5, SIZE)
    assert torch.equal(visible[0], torch.cat((keys[3], new[0, :, 2:]), dim=1))  # the first two of its three are padding
    assert torch.equal(visible[1], torch.cat((keys[0, :, :2], new[1]), dim=1))
    assert torch.equal(stored(cache, 1)[:, :4], keys[1]) and torch.equal(stored(cache, 2)[:, :4], keys[2])


def test_slots_that_lie_in_a_row_are_read_without_copying_them():
    cache = make_cache(rows=4)
    fill(cache, [4, 4, 4, 4])
    cache.begin_extend(np.array([1, 2]), np.array([4, 4]), np.array([1, 1]))
    visible, _ = cache.update(tokens(2, 1), tokens(2, 1), 0)
    assert visible.untyped_storage().data_ptr() == cache.layers[0].keys.untyped_storage().data_ptr()


def test_two_slots_change_places():
    cache = make_cache()
    keys = fill(cache, [4, 2])
    cache.swap([SlotSwap(0, 1, n_columns=4)])
    assert torch.equal(stored(cache, 1)[:, :4], keys[0])
    assert torch.equal(stored(cache, 0)[:, :2], keys[1, :, 2:])
    assert torch.equal(cache.layers[0].values, -cache.layers[0].keys)


def test_several_pairs_of_slots_change_places_at_once():
    cache = make_cache(rows=5)
    lengths = [2, 4, 3, 1, 4]
    keys = fill(cache, lengths)
    cache.swap([SlotSwap(0, 3, n_columns=2), SlotSwap(1, 4, n_columns=4)])
    for slot, before in ((3, 0), (4, 1), (2, 2), (0, 3), (1, 4)):
        length = lengths[before]
        assert torch.equal(stored(cache, slot)[:, :length], keys[before, :, 4 - length :])
