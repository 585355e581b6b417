"""Attention with a mask: a causal one given as a mask gives causal's bits, other masks those of the definition in NumPy
and fractions, in emulated models, too; attention in FP64 knows no tiles."""
import ampscope
import numpy as np
import pytest
from test_attention import DTYPES, Rows, chains, fma, operands, same_bits
from test_attention_gradients import model  # noqa: F401 a fixture

f32 = np.float32


class MaskedRows(Rows):
    """With `mask`, the rows and keys of the tile: what is added to the scaled scores, -infinity to hide a key."""

    def add(self, k, v, first, mask):
        most = np.finfo(f32).max
        added = np.where(np.isinf(mask), mask, np.clip(np.float64(mask) / self.scale, -most, most)).astype(f32)
        p, factor = self.s(chains(self.q, k.T)), np.zeros(len(self.q), f32)
        for r, row in enumerate(p):
            seen = mask[r] > -np.inf
            row[seen] = self.s(row[seen] + added[r][seen])
            most = max(self.max[r], row[seen].max(initial=-np.inf, where=~np.isnan(row[seen])))
            used = most if most > -np.inf else f32(0)
            factor[r] = np.exp2(np.float64((self.max[r] - used) * self.c))
            self.max[r] = most
            shift = f32(self.offset) - used * self.c
            if abs(used * self.c) >= 1024:  # as of -1e10 in place of -infinity
                row, shift = row - used, f32(self.offset)
            p[r] = [np.exp2(np.float64(fma(score, self.c, shift))) if s else 0 for score, s in zip(row, seen)]
            total = f32(0)
            for x in p[r]:
                total = total + x
            self.sum[r] = self.l(self.l(self.sum[r] * factor[r]) + self.l(total))
        self.total = self.o(self.o(self.total * factor[:, None]) + self.o(chains(self.p(p), v)))


@np.errstate(all="ignore")
def twin(q, k, v, mask, rows, keys, out, **how):
    """The result and the logsumexp; tiles that are hidden from all their rows are left out."""
    mask = np.broadcast_to(mask, (*q.shape[:3], k.shape[2]))
    results, sums = np.zeros_like(q), np.zeros(q.shape[:3], f32)
    for b, h, i in np.ndindex(q.shape[0], q.shape[1], -(-q.shape[2] // rows)):
        g, part = h * k.shape[1] // q.shape[1], np.s_[b, h, i * rows:(i + 1) * rows]
        tile = MaskedRows(q[part], 0, causal=False, shift=0, **how)
        for j in range(0, k.shape[2], keys):
            of = mask[part][:, j:j + keys]
            if (of > -np.inf).any():
                tile.add(k[b, g, j:j + keys], v[b, g, j:j + keys], j, of)
        results[part], sums[part] = tile.result(DTYPES[out])
    return results, sums


def random_mask(shape, kind):
    rng = np.random.default_rng(9)
    hidden = rng.random(shape) < 0.45
    if shape[-2] > 1:
        hidden[..., 2, :] = True  # a query that sees nothing
    hidden[..., -1:, :3] = True  # and a tile
    if kind == "boolean":
        return ~hidden
    mask = np.where(hidden, -np.inf, rng.standard_normal(shape)).astype(f32)
    mask[..., 0, :4] = -1e9, -1e30, np.finfo(f32).min, 0.5  # a tile of what programs write for -infinity
    return mask


SHAPES = [(2, 4, 7, 7), (1, 1, 7, 7), (2, 1, 7, 7), (1, 4, 7, 7), (2, 4, 1, 7)]
CASES = [((64, 64), "fp32", ("fp32",) * 4, 0, ""), ((2, 3), "fp32", ("fp32",) * 4, 0, ""),
         ((3, 2), "bf16", ("bf16", "bf16", "fp32", "bf16"), 0, ",s=bf16,o=bf16"),
         ((4, 4), "fp16", ("e4m3", "fp32", "fp16", "fp32"), 8, ",p=e4m3,l=fp16")]


@pytest.mark.parametrize("kind", ["boolean", "additive"])
@pytest.mark.parametrize("number, case", [*enumerate(CASES)], ids=str)
def test_every_bit_follows_the_definition(number, case, kind):
    (rows, keys), format, formats, offset, text = case
    q, k, v = operands(format)
    for shape in (SHAPES[0], SHAPES[1 + number % 4]):
        mask = random_mask(shape, kind)
        added = np.where(mask, 0, -np.inf) if kind == "boolean" else mask
        want = twin(q, k, v, added, rows, keys, "bf16", scale=0.35, formats=formats, offset=offset)
        got = ampscope.attention(q, k, v, f"fused:{rows}x{keys}{text}", mask=mask, scale=0.35, q_format=format,
                                 out_format="bf16", logsumexp=True, threads=2)
        assert all(same_bits(a, b) for a, b in zip(got, want))
        nothing = (np.broadcast_to(added, (2, 4, 7, 7)) == -np.inf).all(-1)
        assert nothing.any() == (shape[2] > 1)
        assert (got[0][nothing] == 0).all() and (got[1][nothing] == np.inf).all()


TEXTS = ["fused", "fused:2x3", "fused:3x2,o=bf16,max=shifted", "fused:4x4,steps=bf16", "fused:1x7,p=e4m3,ds=e5m2",
         "fused:2x5,steps=e4m3,p-sum=rounded", "fused:3x4,s=fp16,l=bf16"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("format", ["fp32", "bf16"])
def test_a_causal_mask_gives_the_bits_of_causal(format, text):
    q, k, v = operands(format)
    grad = operands(format)[0][..., ::-1].copy()
    for x in (q, k):
        x[0, 0, 5, 0] = np.nan  # scores that are hidden from most
    v[1, 1, 6, 0] = np.inf
    how = {"scale": 0.3, "q_format": format, "out_format": format}
    causal, sums = ampscope.attention(q, k, v, text, causal=True, logsumexp=True, **how)
    to = ampscope.attention_gradients(q, k, v, grad, text, causal=True, grad_format=format, **how)
    triangle = np.tri(7, dtype=bool)
    for mask in (triangle, np.where(triangle, 0.0, -np.inf), np.broadcast_to(triangle, (2, 4, 7, 7)).copy()):
        got = ampscope.attention(q, k, v, text, mask=mask, logsumexp=True, **how)
        assert same_bits(got[0], causal) and same_bits(got[1], sums)
        gradients = ampscope.attention_gradients(q, k, v, grad, text, mask=mask, grad_format=format, **how)
        assert all(same_bits(a, b) for a, b in zip(gradients, to))
    assert np.isnan(causal).any() and np.isfinite(causal).any() and np.isfinite(to[0]).any()
    for none in (None, np.ones((7, 7), bool), np.zeros((1, 1))):  # nothing hidden, nothing added
        assert same_bits(ampscope.attention(q, k, v, text, mask=none, **how), ampscope.attention(q, k, v, text, **how))


def in_fp64(q, k, v, grad, mask, scale):
    """The result and the gradients of q, k and v."""
    shared = q.shape[1] // k.shape[1]
    q, grad = q.astype(float), grad.astype(float)
    k, v = (np.repeat(x, shared, 1).astype(float) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    most = scores.max(-1, keepdims=True)
    p = np.exp(scores - np.where(np.isfinite(most), most, 0))
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-300)
    dp = grad @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale

    def by_group(x):
        return x.reshape(x.shape[0], -1, shared, *x.shape[2:]).sum(2)
    return p @ v, ds @ k, by_group(ds.swapaxes(-1, -2) @ q), by_group(p.swapaxes(-1, -2) @ grad)


@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_attention_in_fp64_knows_no_tiles(kind):
    q, k, v = operands("fp32", heads=6, queries=21, keys=33, width=16)
    grad = operands("fp32", heads=6, queries=21, keys=33, width=16)[0][:, ::-1].copy()
    for shape in ((2, 6, 21, 33), (2, 1, 21, 33), (1, 6, 1, 33)):
        mask = random_mask(shape, kind)
        want = in_fp64(q, k, v, grad, np.where(mask, 0, -np.inf) if kind == "boolean" else mask, 0.3)
        for text in ("fused", "fused:1x1", "fused:8x4"):
            got = ampscope.attention(q, k, v, text, mask=mask, scale=0.3)
            gradients = ampscope.attention_gradients(q, k, v, grad, text, mask=mask, scale=0.3)
            assert all(abs(a - b).max() < 2e-5 for a, b in zip((got, *gradients), want))


FAR = [-1e4, -1e9, -1e10, -1e30, np.finfo(f32).min]


@pytest.mark.parametrize("number", FAR)
@pytest.mark.parametrize("scale", [0.125, 0.35, 1])
@pytest.mark.parametrize("format", ["fp32", "fp16"])
def test_finite_numbers_in_place_of_infinity(format, scale, number):
    """Whole tiles of them, and a whole row, in which they hide nothing: it gives what the sums in FP32 say."""
    q, k, v = operands(format, heads=2, queries=4, keys=128, width=8)
    mask = np.zeros((4, 128), f32)
    mask[:2, :64] = mask[2] = number
    mask[3, 64:] = number
    added = f32(max(float(number) / scale, -float(np.finfo(f32).max)))
    shares = f32(np.float64(q) @ np.float64(k).swapaxes(-1, -2)) + np.where(mask == 0, f32(0), added)
    shares = np.float64(shares) * scale
    shares = np.exp(shares - shares.max(-1, keepdims=True))
    want = shares @ v / shares.sum(-1, keepdims=True)
    near = 1e-5 if format == "fp32" else 2e-3
    for text in ("fused", "fused:3x16", "fused:steps=fp32"):
        got, sums = ampscope.attention(q, k, v, text, mask=mask, scale=scale, q_format=format, logsumexp=True)
        assert np.isfinite(sums).all() and abs(got - want)[..., [0, 1, 3], :].max() < near
        assert abs(got - want)[..., 2, :].max() < (1e-2 if number == -1e4 else near)  # -1e4 / scale has few digits
        grad = operands(format, heads=2, queries=4, keys=128, width=8)[0][:, ::-1].copy()
        how = {"mask": mask, "scale": scale, "q_format": format, "grad_format": format}
        assert all(np.isfinite(x).all() for x in ampscope.attention_gradients(q, k, v, grad, text, **how))
        grad[..., 2, :] = 0
        exact = in_fp64(q, k, v, grad, np.where((mask == 0) | (np.arange(4) == 2)[:, None], 0, -np.inf), scale)
        gradients = ampscope.attention_gradients(q, k, v, grad, text, **how)
        assert all(abs(a - b).max() < 20 * near for a, b in zip(gradients, exact[1:]))
    torch = pytest.importorskip("torch")
    plain = torch.nn.functional.scaled_dot_product_attention(*(torch.from_numpy(x) for x in (q, k, v)),
                                                             attn_mask=torch.from_numpy(mask), scale=scale)
    assert abs(plain.numpy() - want).max() < (1e-2 if number == -1e4 else 1e-5)


def test_masks_beyond_fp32_after_the_scale_saturate():
    q, k, v = operands("fp32")
    most = np.finfo(f32).max
    for number, want in ((1e38, v[:, :, [2]]), (-most, v.mean(2, keepdims=True))):
        mask = np.full((7, 7), number, f32)
        if number > 0:
            mask[:, np.arange(7) != 2] = 0
        for text in ("fused", "fused:2x3"):
            got, sums = ampscope.attention(q, k, v, text, mask=mask, scale=0.125, logsumexp=True)
            assert abs(got - np.repeat(want, 2, 1)).max() < 1e-6
            assert np.array_equal(sums, np.full_like(sums, np.copysign(most * 0.125, number)))
    hidden = ampscope.attention(q, k, v, mask=np.full((7, 7), -np.inf), scale=0.125)
    assert not hidden.any()
    infinite = ampscope.attention(q, k, v, mask=np.eye(7) * most + np.where(np.eye(7), np.inf, 0), scale=0.125)
    assert np.isnan(infinite).all()


def test_masks_that_do_not_fit_are_named():
    q, k, v = operands("fp32")
    for mask, error, words in [
            (np.ones((7, 6), bool), ValueError, r"of \(2, 4, 7, 7\) or of extents of 1, got \(1, 1, 7, 6\)"),
            (np.ones((2, 2, 7, 7), bool), ValueError, r"expected a mask of \(2, 4, 7, 7\)"),
            (np.ones((1, 2, 4, 7, 7), bool), ValueError, "at most 4 axes, as q has"),
            (np.ones((7, 0)), ValueError, "a mask with extents of at least 1"),
            (np.tri(7, dtype=int), TypeError, "mask: expected booleans or floating-point numbers, got int64"),
            (np.full((7, 7), 0.1), ValueError, r"mask\[0, 0\] is 0.1, which is no value of fp32")]:
        with pytest.raises(error, match=words):
            ampscope.attention(q, k, v, mask=mask)
    with pytest.raises(ValueError, match="expected a mask or a causal one, not both"):
        ampscope.attention(q, k, v, mask=np.ones((7, 7), bool), causal=True)
    alone = ampscope.attention(q[0, 0], k[0, 0], v[0, 0], mask=np.tri(7, dtype=bool))
    assert same_bits(alone, ampscope.attention(q[0, 0], k[0, 0], v[0, 0], causal=True))
    torch = pytest.importorskip("torch")
    for mask in (torch.ones(7, 7).tril().bool(), torch.zeros(7, 7, dtype=torch.bfloat16).masked_fill(
            torch.ones(7, 7).triu(1).bool(), -torch.inf)):
        assert same_bits(ampscope.attention(q, k, v, mask=mask), ampscope.attention(q, k, v, causal=True))
    with pytest.raises(TypeError, match="mask: requires a gradient"):
        ampscope.attention(q, k, v, mask=torch.zeros(7, 7, requires_grad=True))


def emulated(model, x, attention, precision="fp32", **how):
    """The result, its gradients, and the coverage."""
    import torch

    import ampscope.torch
    q, k, v, grad = (torch.from_numpy(a).requires_grad_(i < 3) for i, a in enumerate(x))
    with ampscope.torch.emulate(model, precision, attention=attention) as machine:
        out = model(q, k, v, **how)
        out.backward(grad)
    return [out.detach().numpy(), *(t.grad.numpy() for t in (q, k, v))], machine.coverage()


@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_emulated_models_attend_in_tiles(model, kind):
    import torch
    x = [*operands("fp32", heads=2), operands("fp32", heads=2)[0][::-1].copy()]
    for shape in ((2, 2, 7, 7), (7, 7), (2, 1, 1, 7), (1, 7)):
        mask = random_mask((1,) * (4 - len(shape)) + shape, kind).reshape(shape)
        got, coverage = emulated(model, x, "fused:4x3", attn_mask=torch.from_numpy(mask), scale=0.4)
        want = [ampscope.attention(*x[:3], "fused:4x3", mask=mask, scale=0.4),
                *ampscope.attention_gradients(*x, "fused:4x3", mask=mask, scale=0.4)]
        assert all(np.array_equal(a, b) for a, b in zip(got, want))
        assert {row["op"] for row in coverage} == {"scaled_dot_product_attention"}
        plain, _ = emulated(model, x, "plain", attn_mask=torch.from_numpy(mask), scale=0.4)
        exact = in_fp64(*x, np.where(mask, 0, -np.inf) if kind == "boolean" else mask, 0.4)
        for result in (got, plain):  # a row without keys is zeros in both, as in PyTorch from 2.5 on
            assert all(abs(a - b).max() < 1e-5 for a, b in zip(result, exact))


def test_axes_before_the_heads_are_one_batch(model):
    import torch
    x = [a.reshape(2, 2, 2, 7, 4) for a in operands("fp32", groups=4)]
    x.append(x[0] * 0.5)
    for shape in ((2, 1, 2, 7, 7), (1, 2, 1, 7, 7), (2, 7, 7), (2, 2, 1, 1, 7)):
        mask = random_mask(shape, "boolean")
        got, _ = emulated(model, x, "fused:2x4", attn_mask=torch.from_numpy(mask))
        full = [a.reshape(4, 2, 7, 4) for a in x[:3]]
        four = np.broadcast_to(mask, (2, 2, 2, 7, 7)).reshape(4, 2, 7, 7)
        assert np.array_equal(got[0].reshape(4, 2, 7, 4), ampscope.attention(*full, "fused:2x4", mask=four))


def test_autocast_rounds_the_mask_with_the_operands(model):
    import torch
    x = [*operands("fp32", heads=2), operands("fp32", heads=2)[0]]
    mask = random_mask((7, 7), "additive")
    got, _ = emulated(model, x, "fused:4x3", "amp-bf16", attn_mask=torch.from_numpy(mask))
    low = [f32(ampscope.quantize(a, "bf16")) for a in (*x[:3], mask)]
    want = ampscope.attention(*low[:3], "fused:4x3", mask=low[3], q_format="bf16", out_format="bf16")
    assert np.array_equal(got[0], want)


@pytest.mark.parametrize("attention", ["fused:4x3", "plain"])
def test_masks_may_be_wider_than_queries(model, attention):
    import torch

    import ampscope.torch
    low = [torch.from_numpy(a).bfloat16() for a in operands("bf16", heads=2)]
    mask = random_mask((7, 7), "additive")
    with ampscope.torch.emulate(model, "fp32", attention=attention, strict=True) as machine:
        got = model(*low, attn_mask=torch.from_numpy(mask), scale=0.4)
        for wrong in (torch.ones(7, 7, dtype=torch.int64), torch.ones(7, 7).half()):
            with pytest.raises((NotImplementedError, RuntimeError)):
                model(*low, attn_mask=wrong)
    x = [t.float().numpy() for t in low]
    want = ampscope.attention(*x, "fused:4x3", mask=mask, scale=0.4, q_format="bf16", out_format="bf16")
    assert got.dtype == torch.bfloat16 and machine.coverage().share == 1
    if attention == "plain":
        assert abs(got.float().numpy() - want).max() < 0.02
    else:
        assert np.array_equal(got.float().numpy(), want)


@pytest.mark.parametrize("attention", ["fused:4x3", "plain"])
def test_masks_of_other_kinds(model, attention):
    """Whose errors are PyTorch's, or which are counted as left to it, as operands of these kinds are."""
    import torch

    import ampscope.torch

    class Named(torch.Tensor):
        pass
    x = [torch.from_numpy(a) for a in operands("fp32", heads=2)]
    triangle = torch.ones(7, 7).tril().bool()
    for mask in (torch.tensor(0.0), torch.tensor(True), torch.zeros(7), torch.ones(7, dtype=torch.bool)):
        with pytest.raises(IndexError) as plain:
            model(*x, attn_mask=mask)
        with ampscope.torch.emulate(model, "fp32", attention=attention), pytest.raises(IndexError) as ours:
            model(*x, attn_mask=mask)
        assert str(ours.value) == str(plain.value)
    for mask, kind in ((triangle.float().to_sparse(), "sparse"), (triangle.as_subclass(Named), "Named")):
        with ampscope.torch.emulate(model, "fp32", attention=attention, strict=True):
            with pytest.raises(NotImplementedError, match=f"scaled_dot_product_attention of a {kind}"):
                model(*x, attn_mask=mask)


def test_boolean_masks_do_not_depend_on_the_default_type(model):
    import torch
    x = [*operands("fp32", heads=2), operands("fp32", heads=2)[0]]
    mask = torch.ones(7, 7).tril().bool()
    want, _ = emulated(model, x, "fused:4x3", attn_mask=mask)
    torch.set_default_dtype(torch.float64)
    try:
        got, _ = emulated(model, x, "fused:4x3", attn_mask=mask)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(same_bits(a, b) for a, b in zip(got, want))


def test_a_mask_that_learns_is_computed_without_tiles(model):
    import torch

    import ampscope.torch
    x = operands("fp32", heads=2)
    bias = torch.zeros(7, 7, requires_grad=True)
    results = []
    for text in ("fused", "plain"):
        with ampscope.torch.emulate(model, "fp32", attention=text):
            results.append(model(*map(torch.from_numpy, x), attn_mask=bias))
            results[-1].square().sum().backward()
    assert torch.equal(*results) and bias.grad.abs().sum() > 0
