// Operands of dot products in which the order of the sum and its roundings show.
#include <ampscope/sim/analysis/conformance/detail/operands.h>

#include <ampscope/formats/arithmetic.h>

#include <algorithm>

namespace amp::conformance::detail {

namespace {

/// a, b and c of one dot product.
struct Terms {
    const FormatSpec &a_format, &b_format, &total;
    std::vector<std::uint32_t> a, b;
    std::uint32_t c = 0;
    std::vector<std::uint32_t> a_scales{}, b_scales{};
};

std::uint32_t negated(const FormatSpec& f, std::uint32_t code) {
    return f.has_negative_zero() || (code & f.magnitude_mask()) != 0 ? code ^ f.sign_mask() : code;
}

std::uint32_t zero_of(const FormatSpec& f, Draw& draw) {
    return draw.one_in(2) && f.has_negative_zero() ? f.sign_mask() : 0;
}

/// A number of that exponent, or of the nearest that the format has, with random fraction and sign.
std::uint32_t code_near(const FormatSpec& f, int exponent, Draw& draw) {
    const int e = std::clamp(exponent, f.min_subnormal_exponent(), f.max_exponent());
    const std::uint64_t significand = std::uint64_t{1} << 31 | draw.word();
    Flags unused;
    const Policy cut{.rounding = Rounding::toward_zero, .overflow = Overflow::saturate_all};
    return round_pack(f, draw.one_in(2), e - 31, significand, cut, 0, unused);
}

/// An addend of the size of the product of two finite codes; or any; or zero.
std::uint32_t addend(const Terms& t, Draw& draw) {
    if (draw.one_in(4)) return zero_of(t.total, draw);
    if (draw.one_in(4)) return finite_code(t.total, draw);
    const Unpacked x = unpack(t.a_format, finite_code(t.a_format, draw)),
                   y = unpack(t.b_format, finite_code(t.b_format, draw));
    if (x.kind != amp::Kind::finite || y.kind != amp::Kind::finite) return zero_of(t.total, draw);
    Flags unused;
    return pack(t.total, amp::detail::exact_product(x, y), {.overflow = Overflow::saturate_all}, 0, unused);
}

void fill_random(Terms& t, Draw& draw) {
    for (std::uint32_t& code : t.a) code = finite_code(t.a_format, draw);
    for (std::uint32_t& code : t.b) code = finite_code(t.b_format, draw);
    t.c = addend(t, draw);
}

std::uint32_t finite_edge(const FormatSpec& f, const std::vector<std::uint32_t>& edges, Draw& draw) {
    for (;;)
        if (const std::uint32_t code = edges[draw.below(edges.size())]; is_finite_code(f, code)) return code;
}

void fill_edges(Terms& t, Draw& draw) {
    const std::vector<std::uint32_t> a = edge_codes(t.a_format), b = edge_codes(t.b_format), c = edge_codes(t.total);
    for (std::uint32_t& code : t.a) code = finite_edge(t.a_format, a, draw);
    for (std::uint32_t& code : t.b) code = finite_edge(t.b_format, b, draw);
    t.c = draw.one_in(2) ? addend(t, draw) : finite_edge(t.total, c, draw);
}

/// Each term once more with the other sign, somewhere else in the sum; one in eight is moved by a unit of one factor.
void fill_cancelling(Terms& t, Draw& draw) {
    fill_random(t, draw);
    std::vector<std::size_t> places(t.a.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
    for (std::size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[draw.below(i)]);
    for (std::size_t i = 0; i + 1 < places.size(); i += 2) {
        const std::size_t from = places[i], to = places[i + 1];
        t.a[to] = negated(t.a_format, t.a[from]);
        t.b[to] = t.b[from];
        if (!draw.one_in(8)) continue;
        if (const std::uint32_t moved = next_up(t.a_format, t.a[to]); is_finite_code(t.a_format, moved))
            t.a[to] = moved;
    }
    if (draw.one_in(2)) t.c = zero_of(t.total, draw);
}

/// Small terms of one size, and a term or an addend that is 2^0 to 2^40 times as large, as far as the formats reach.
void fill_one_large(Terms& t, Draw& draw) {
    const int least = t.a_format.min_subnormal_exponent() + t.b_format.min_subnormal_exponent();
    const int most = t.a_format.max_exponent() + t.b_format.max_exponent();
    const int small = draw.between(std::max(least, t.total.min_subnormal_exponent()), most),
              large = small + draw.between(0, 40);
    const auto place = [&](std::size_t i, int exponent) {
        const int low = std::max(t.a_format.min_subnormal_exponent(), exponent - t.b_format.max_exponent());
        const int high = std::min(t.a_format.max_exponent(), exponent - t.b_format.min_subnormal_exponent());
        const int e = draw.between(low, std::max(low, high));
        t.a[i] = code_near(t.a_format, e, draw);
        t.b[i] = code_near(t.b_format, exponent - e, draw);
    };
    for (std::size_t i = 0; i < t.a.size(); ++i) place(i, small);
    t.c = draw.one_in(3) ? code_near(t.total, large, draw) : zero_of(t.total, draw);
    if (!draw.one_in(3)) place(draw.below(t.a.size()), std::min(large, most));
}

std::uint32_t special(const FormatSpec& f, Draw& draw) {
    const std::uint32_t choice = draw.below(4);
    if (choice == 0 && f.has_nan()) return f.nan_code() | (draw.one_in(2) ? f.sign_mask() : 0);
    if (choice <= 2 && f.has_infinity()) return f.infinity_code() | (draw.one_in(2) ? f.sign_mask() : 0);
    return zero_of(f, draw);
}

/// One to four special operands among finite ones; one case in eight has nothing but zeros.
void fill_specials(Terms& t, Draw& draw) {
    fill_random(t, draw);
    if (draw.one_in(8)) {
        for (std::uint32_t& code : t.a) code = zero_of(t.a_format, draw);
        for (std::uint32_t& code : t.b) code = draw.one_in(2) ? zero_of(t.b_format, draw) : code;
        t.c = zero_of(t.total, draw);
    }
    for (int left = draw.between(1, 4); left > 0; --left) {
        const std::uint32_t which = draw.below(3);
        const std::size_t i = draw.below(t.a.size());
        if (which == 0) t.a[i] = special(t.a_format, draw);
        else if (which == 1) t.b[i] = special(t.b_format, draw);
        else if (draw.one_in(4)) t.c = special(t.total, draw);
    }
}

/// A number from 2^-6 to 2^7: what scales of tensors look like, where a format has them.
std::uint32_t ordinary_scale(const FormatSpec& f, Draw& draw) {
    const int e = std::clamp(draw.between(-6, 6), f.min_exponent(), f.max_exponent());
    Flags unused;
    return round_pack(f, false, e - 31, std::uint64_t{1} << 31 | draw.word(), {.rounding = Rounding::toward_zero}, 0,
                      unused);
}

/// Edges among edges; elsewhere one in four any finite code, among specials one in four NaN or zero. Terms that cancel,
/// or are of one size, share a scale.
void fill_scales(std::vector<std::uint32_t>& scales, const FormatSpec& f, Kind kind, Draw& draw) {
    const bool one_for_all = kind == Kind::cancel || kind == Kind::one_large;
    const std::vector<std::uint32_t> edges = edge_codes(f);
    for (std::uint32_t& code : scales)
        if (one_for_all && &code != &scales.front()) code = scales.front();
        else if (kind == Kind::edges) code = finite_edge(f, edges, draw);
        else code = !one_for_all && draw.one_in(4) ? finite_code(f, draw) : ordinary_scale(f, draw);
    if (kind != Kind::specials || !draw.one_in(4)) return;
    std::uint32_t& code = scales[draw.below(scales.size())];
    code = f.has_zero && draw.one_in(2) ? zero_of(f, draw) : f.has_nan() ? f.nan_code() : code;
}

/// Moves the addend by the first block's scales in three of four cases, so that it keeps the size of the products.
void scale_addend(Terms& t, const FormatSpec& scale, Draw& draw) {
    const Unpacked x = unpack(scale, t.a_scales.front()), y = unpack(scale, t.b_scales.front());
    Unpacked c = unpack(t.total, t.c);
    const auto finite = [](const Unpacked& u) { return u.kind == amp::Kind::finite; };
    if (draw.one_in(4) || !finite(x) || !finite(y) || !finite(c)) return;
    const auto binade = [](const Unpacked& u) { return u.exponent + bit_length(u.significand) - 1; };
    c.exponent += binade(x) + binade(y);
    Flags unused;
    t.c = pack(t.total, c, {.overflow = Overflow::saturate_all}, 0, unused);
}

} // namespace

std::vector<std::uint32_t> dot_operands(const Question& q, Kind kind, const RandomKey& key, std::uint64_t at) {
    Draw draw(key, at);
    const FormatSpec b_format = q.b.value_or(q.format), total = total_of(q);
    Terms t{q.format, b_format, total, std::vector<std::uint32_t>(q.k), std::vector<std::uint32_t>(q.k)};
    switch (kind) {
    case Kind::edges: fill_edges(t, draw); break;
    case Kind::cancel: fill_cancelling(t, draw); break;
    case Kind::one_large: fill_one_large(t, draw); break;
    case Kind::specials: fill_specials(t, draw); break;
    case Kind::random:
    case Kind::ties:
    case Kind::all: fill_random(t, draw); break;
    }
    for (std::vector<std::uint32_t>* scales : {&t.a_scales, &t.b_scales}) {
        scales->resize(scales_of(q));
        if (q.scales) fill_scales(*scales, q.scales->format, kind, draw);
    }
    if (q.scales) scale_addend(t, q.scales->format, draw);
    std::vector<std::uint32_t> codes = std::move(t.a);
    for (const auto* more : {&t.b, &t.a_scales, &t.b_scales}) codes.insert(codes.end(), more->begin(), more->end());
    codes.push_back(t.c);
    return codes;
}

} // namespace amp::conformance::detail
