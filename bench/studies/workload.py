"""A server of coding assistants: how many tokens the calls of a layer have, from one user to many.

Every user always has a turn under way: a prompt of some length, then answers of GENERATED tokens. As in continuous batching
with chunked prompts, an iteration takes one token of every user who is generating and fills the rest of its budget with prompts,
first come first served. The last chunk of a prompt gives the first token of its answer.
"""
import collections
import math
import random

# Lengths of the new tokens of a turn in 397 conversations; what is left to 1 was not published.
PROMPTS = {16: 0.152, 32: 0.168, 64: 0.100, 128: 0.094, 256: 0.085, 512: 0.086, 1024: 0.064, 2048: 0.050, 4096: 0.036,
           8192: 0.014, 16384: 0.014, 32768: 0.014}
GENERATED = 114  # tokens of an answer, on average
BUDGET = 2048    # tokens of an iteration
TURNS = 2000
USERS = (1, 2, 4, 8, 16, 32, 64)
REGIMES = (("1", 1), ("2 to 16", 16), ("17 to 512", 512), ("above 512", math.inf))


def prompt_probabilities():
    total = sum(PROMPTS.values())
    return {length: part / total for length, part in PROMPTS.items()}


def prompts(n, seed):
    probabilities = prompt_probabilities()
    return random.Random(seed).choices(list(probabilities), list(probabilities.values()), k=n)


def iterations(n_users, lengths):
    """Counter: tokens of an iteration -> how many iterations have that many, until all turns are answered."""
    counts = collections.Counter()
    coming = collections.deque(lengths)
    waiting = collections.deque(coming.popleft() for _ in range(min(n_users, len(coming))))
    generating = []  # tokens that each still has to give
    while waiting or generating:
        room = BUDGET - len(generating)
        n_tokens, begun = len(generating), 0
        while waiting and room > 0:
            chunk = min(room, waiting[0])
            room, n_tokens = room - chunk, n_tokens + chunk
            waiting[0] -= chunk
            if waiting[0] == 0:
                waiting.popleft()
                begun += 1
        counts[n_tokens] += 1
        left = [tokens - 1 for tokens in generating if tokens > 1]
        for _ in range(len(generating) - len(left)):
            if coming:
                waiting.append(coming.popleft())
        generating = left + [GENERATED - 1] * begun
    return counts


def time_at(times, n_tokens):
    """Between the measured numbers of tokens: straight in the logarithms. times: {tokens: us}"""
    sizes = sorted(times)
    if not sizes[0] <= n_tokens <= sizes[-1]:
        raise ValueError(f"{n_tokens} tokens lie outside of what was measured")
    if n_tokens in times:
        return times[n_tokens]
    after = next(i for i, size in enumerate(sizes) if size > n_tokens)
    low, high = sizes[after - 1], sizes[after]
    part = math.log(n_tokens / low) / math.log(high / low)
    return times[low] * (times[high] / times[low]) ** part


def regime_of(n_tokens):
    return next(name for name, most in REGIMES if n_tokens <= most)


def time_by_regime(counts, times):
    """{regime: us of all its iterations}"""
    spent = {name: 0.0 for name, _ in REGIMES}
    for n_tokens, count in sorted(counts.items()):
        spent[regime_of(n_tokens)] += count * time_at(times, n_tokens)
    return spent
