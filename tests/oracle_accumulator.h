// The oracle of fused sums: matrix hardware's dot product with exact integers of any size and parameters copied from
// the papers that accumulator.h names. It shares no code with formats/.
#pragma once

#include "oracle.h"

#include <algorithm>
#include <string>
#include <vector>

namespace oracle {

/// An instruction's parameters in the papers' tables.
struct Matrix {
    std::string name;
    std::string a, b;   // the formats in which operands are read
    int products, bits; // products of a step; bits kept below the largest exponent
    std::string result; // fp32, 22 (an FP32 register that keeps 13 fraction bits) or fp16
    int zero_exponent;  // 1: zeros have no exponent
    bool is_mma_fp8 = false;
    int group = 0;               // products that are added exactly before their scales apply; 0: none
    std::string steps = "fused"; // or floored, halves (AMD); tree, pairs, chains (of FP32 operations); wrapped, clamped
};

inline const Facts kept_13 = {"e8m13", 1, 8, 13, 127, 0x1.fff8p127, 0x1fe000, 0x1fe001, 0x1fffff, 0x1ff000};

inline std::vector<Matrix> matrices() {
    std::vector<Matrix> all;
    const auto both = [&](const std::string& name, const std::string& format, int products, int bits, int zero32,
                          int zero16) {
        all.push_back({name, format, format, products, bits, "fp32", zero32});
        if (zero16 != 0) all.push_back({name + "-acc16", format, format, products, bits, "fp16", zero16});
    };
    both("volta-fp16", "fp16", 4, 23, -131, -19);
    both("turing-fp16", "fp16", 8, 24, -132, -20);
    for (const std::string arch : {"ampere", "ada"}) {
        both(arch + "-fp16", "fp16", 8, 24, -132, -20);
        both(arch + "-bf16", "bf16", 8, 24, -132, 0);
        both(arch + "-tf32", "tf32", 4, 24, -132, 0);
    }
    for (const std::string arch : {"hopper", "hopper-wgmma", "blackwell"}) {
        both(arch + "-fp16", "fp16", 16, 25, -133, -21);
        both(arch + "-bf16", "bf16", 16, 25, -133, 0);
        both(arch + "-tf32", "tf32", 8, 25, -133, 0);
    }
    for (const std::string a : {"e4m3", "e5m2"})
        for (const std::string b : {"e4m3", "e5m2"}) {
            for (const std::string& name : {std::string("hopper-wgmma-fp8"), "ada-" + a}) {
                if (name != "hopper-wgmma-fp8" && a != b) continue;
                const int products = name == "hopper-wgmma-fp8" ? 32 : 16;
                all.push_back({name, a, b, products, 13, "22", 1});
                all.push_back({name + "-acc16", a, b, products, 13, "fp16", 1});
            }
            for (const std::string arch : {"hopper", "blackwell"}) {
                all.push_back({arch + "-mma-fp8", a, b, 16, 25, "fp32", -133, true});
                all.push_back({arch + "-mma-fp8-acc16", a, b, 16, 25, "fp16", -21, true});
            }
        }
    for (const std::string a : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}) {
        all.push_back({"blackwell-fp8", a, "e4m3", 32, 25, "fp32", -133});
        all.push_back({"blackwell-fp8-acc16", "e5m2", a, 32, 25, "fp16", -21});
    }
    all.push_back({"blackwell-mxf4nvf4", "e2m1", "e2m1", 64, 35, "fp32", -126, false, 16});
    const auto other = [&](const std::string& name, const std::string& a, const std::string& b, int products,
                           const std::string& steps) {
        all.push_back({name, a, b, products, 24, "fp32", 1, false, 0, steps});
    };
    other("cdna2-fp16", "fp16", "fp16", 4, "tree");
    other("cdna2-bf16", "bf16", "bf16", 2, "tree");
    other("cdna2-1k-bf16", "bf16", "bf16", 4, "tree");
    other("cdna3-fp16", "fp16", "fp16", 8, "floored");
    other("cdna3-bf16", "bf16", "bf16", 8, "floored");
    other("cdna3-xf32", "tf32", "tf32", 4, "floored");
    for (const std::string a : {"e4m3fnuz", "e5m2fnuz"})
        for (const std::string b : {"e4m3fnuz", "e5m2fnuz"}) other("cdna3-fp8", a, b, 16, "halves");
    for (const std::string a : {"int8", "int4", "e0m3"})
        for (const std::string steps : {"wrapped", "clamped"})
            other(steps == "wrapped" ? "int32" : "int32-satfinite", a, "int8", 32, steps);
    for (const std::string a : {"int4", "e0m3"}) other("int32-satfinite-k64", a, "int4", 64, "clamped");
    other("avx512-bf16", "bf16", "bf16", 2, "pairs");
    other("amx-bf16", "bf16", "bf16", 32, "chains");
    return all;
}

/// (-1)^negative * n * 2^unit, aligned by `exponent`.
struct Aligned {
    Class kind = Class::zero;
    bool negative = false;
    Integer n = 0;
    int unit = 0, exponent = 0;
};

/// A number in the form used for alignment: 1 <= significand < 2, or less at the format's least exponent.
inline Aligned enter(const Facts& f, const Number& x) {
    Aligned t{x.kind, x.negative, x.numerator, x.exponent, 0};
    if (x.kind == Class::finite) t.exponent = std::max(static_cast<int>(msb(x.numerator)) + x.exponent, 1 - f.bias);
    return t;
}

inline Aligned multiply(const Aligned& a, const Aligned& b) {
    Aligned t{Class::finite, a.negative != b.negative, a.n * b.n, a.unit + b.unit, a.exponent + b.exponent};
    const auto either = [&](Class kind) { return a.kind == kind || b.kind == kind; };
    if (either(Class::nan) || (either(Class::zero) && either(Class::infinity))) t.kind = Class::nan;
    else if (either(Class::infinity)) t.kind = Class::infinity;
    else if (either(Class::zero)) t.kind = Class::zero;
    return t;
}

inline constexpr std::uint32_t nan_bits = 0x7fffffff;

/// sum * 2^unit, rounded to the result's register, as FP32 bits.
inline std::uint32_t finish(const Matrix& m, const Integer& sum, int unit) {
    if (sum == 0) return 0;
    const Number x{.kind = Class::finite, .negative = sum < 0, .numerator = abs(sum), .exponent = unit};
    const Facts& f = m.result == "fp16" ? find("fp16") : m.result == "22" ? kept_13 : find("fp32");
    const bool nearest = m.result == "fp16";
    if (!nearest && compare(x, {1, 128}) >= 0) return x.negative ? 0xff800000 : 0x7f800000;
    const Policy policy{.rounding = nearest ? Rounding::nearest_even : Rounding::toward_zero};
    return std::bit_cast<std::uint32_t>(to_float(f, store({f, policy}, x).code));
}

/// One step: the FP32 bits of c + the sum of terms.
inline std::uint32_t step(const Matrix& m, std::vector<Aligned> terms, float c) {
    const Facts& container = find(m.result == "fp16" ? "fp16" : "fp32");
    terms.push_back(enter(container, read(c)));
    bool positive = false, negative = false, any = false;
    int largest = 0;
    for (const Aligned& t : terms) {
        if (t.kind == Class::nan) return nan_bits;
        if (t.kind == Class::infinity) (t.negative ? negative : positive) = true;
        if (t.kind == Class::zero && m.zero_exponent > 0) continue;
        const int e = t.kind == Class::zero ? m.zero_exponent : t.exponent;
        largest = any ? std::max(largest, e) : e;
        any = true;
    }
    if (positive && negative) return nan_bits;
    if (positive || negative) return negative ? 0xff800000 : 0x7f800000;
    Integer sum = 0;
    for (const Aligned& t : terms) {
        const int shift = t.unit - (largest - m.bits);
        const Integer units = shift >= 0 ? Integer(t.n << shift) : Integer(t.n >> -shift);
        sum += t.negative ? Integer(-units) : units;
    }
    const std::uint32_t bits = finish(m, sum, largest - m.bits);
    return bits == 0x80000000 ? 0 : bits; // no step gave -0 on an H200
}

/// x + y rounded to nearest-even in FP32 or FP16, as mma.sync adds c.
inline std::uint32_t add(const std::string& format, float x, float y) {
    if (std::isnan(x) || std::isnan(y) || (std::isinf(x) && std::isinf(y) && x != y)) return nan_bits;
    const double sum = static_cast<double>(x) + y; // exact for FP16; for FP32 the rounding to odd of 53 bits is enough
    if (format == "fp32") return std::bit_cast<std::uint32_t>(x + y);
    return std::bit_cast<std::uint32_t>(to_float(find("fp16"), convert({find("fp16")}, read(sum)).code));
}

/// The product of the two scales of each block of numbers, as an instruction reads them; a zero one has MMA-Sim's
/// exponent of zeros.
struct Scales {
    std::vector<Aligned> products;
    std::size_t block = 1;

    static Aligned read_scale(const std::string& format, float x) {
        if (format == "e8m0") return {Class::finite, false, 1, std::ilogb(x), std::ilogb(x)};
        Aligned t = enter(find(format), read(std::fabs(x)));
        if (t.kind == Class::zero) t.exponent = -126;
        return t;
    }
    void add(const std::string& format, float a, float b) {
        const Aligned x = read_scale(format, a), y = read_scale(format, b);
        products.push_back({Class::finite, false, x.n * y.n, x.unit + y.unit, x.exponent + y.exponent});
    }
    void apply(Aligned& t, std::size_t k) const {
        if (products.empty()) return;
        const Aligned& s = products[k / block];
        t.n *= s.n;
        t.unit += s.unit;
        t.exponent += s.exponent;
    }
};

/// The exact sum of products as one term: its exponent is 0, whatever the sum is.
inline Aligned exact_group(const std::vector<Aligned>& products) {
    constexpr int unit = -100; // below any product of FP4 numbers, as read() gives them
    Integer sum = 0;
    for (const Aligned& p : products)
        if (p.kind != Class::zero)
            sum += p.negative ? Integer(-(p.n << (p.unit - unit))) : Integer(p.n << (p.unit - unit));
    return {Class::finite, sum < 0, abs(sum), unit, 0};
}

/// floor(n * 2^shift)
inline Integer floor_shift(const Integer& n, int shift) {
    if (shift >= 0) return n << shift;
    const Integer down = abs(n) >> -shift;
    if (n >= 0) return down;
    return (down << -shift) == abs(n) ? Integer(-down) : Integer(-down - 1);
}

/// One step of AMD's CDNA3, after MMA-Sim's amd_fused_dot_rd_add; zeros have no exponent.
inline float amd_step(const Matrix& m, const std::vector<Aligned>& products, float c) {
    double ieee = c; // NaN and infinities of the operands decide as in any order of additions
    bool large[2] = {false, false};
    for (const Aligned& p : products) {
        if (p.kind == Class::nan) ieee = NAN;
        if (p.kind == Class::infinity) ieee += p.negative ? -INFINITY : INFINITY;
        if (p.kind == Class::finite && static_cast<int>(msb(p.n)) + p.unit >= 128) large[p.negative ? 1 : 0] = true;
    }
    if (!std::isfinite(ieee)) return static_cast<float>(ieee);
    if (large[0] || large[1]) return large[0] && large[1] ? NAN : large[1] ? -INFINITY : INFINITY;
    struct Sum {
        Integer n = 0; // in units of 2^(exponent - 24)
        int exponent = -100000;
    } sums[2];
    const std::size_t halves = m.steps == "halves" ? 2 : 1;
    for (std::size_t i = 0; i < products.size(); ++i)
        if (products[i].kind == Class::finite)
            sums[i % halves].exponent = std::max(sums[i % halves].exponent, products[i].exponent);
    for (std::size_t i = 0; i < products.size(); ++i) {
        const Aligned& p = products[i];
        if (p.kind != Class::finite) continue;
        const int shift = p.unit - (sums[i % halves].exponent - 24);
        const Integer n = shift >= 0 ? Integer(p.n << shift) : Integer(p.n >> -shift);
        sums[i % halves].n += p.negative ? Integer(-n) : n;
    }
    const int e = std::max(sums[0].exponent, sums[1].exponent);
    Integer sum = 0;
    for (const Sum& s : sums)
        if (s.exponent > -100000) sum += floor_shift(s.n, s.exponent - e);
    const Aligned addend = enter(find("fp32"), read(c));
    const int largest = c == 0 ? e : std::max(e, addend.exponent);
    if (largest == -100000) return 0;
    Integer total = e == -100000 ? Integer(0) : floor_shift(sum, 7 + e - largest);
    if (c != 0 && (halves == 1 || addend.exponent >= largest - 25))
        total += floor_shift(addend.negative ? Integer(-addend.n) : addend.n, addend.unit - (largest - 24)) << 7;
    if (total == 0) return 0;
    const Number exact{.kind = Class::finite, .negative = total < 0, .numerator = abs(total), .exponent = largest - 31};
    return to_float(find("fp32"), store({find("fp32")}, exact).code);
}

/// One step of FP32 operations that flush subnormals, in the processor's arithmetic.
inline float flushed_step(const Matrix& m, const std::vector<float>& a, const std::vector<float>& b, float c) {
    const auto flush = [](float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; };
    c = flush(c);
    if (m.steps == "pairs") return flush(std::fma(a[0], b[0], flush(std::fma(a[1], b[1], c))));
    if (m.steps == "chains") {
        float even = 0, odd = 0;
        for (std::size_t i = 0; i < a.size(); i += 2) {
            even = flush(std::fma(a[i], b[i], even));
            odd = flush(std::fma(a[i + 1], b[i + 1], odd));
        }
        return flush(c + flush(even + odd));
    }
    const auto p = [&](std::size_t i) { return flush(a[i] * b[i] + 0.0F); };
    const float first = flush(p(0) + p(1));
    return flush(c + (a.size() == 2 ? first : flush(first + flush(p(2) + p(3)))));
}

/// Sums of integers in INT32, c first: a float without its fraction, at the ends of INT32 if it is beyond, 0 if NaN.
inline std::uint32_t integer_dot(const Matrix& m, const std::vector<float>& a, const std::vector<float>& b, float c) {
    const Integer modulus = Integer(1) << 32, half = Integer(1) << 31, last = half - 1;
    Integer sum = 0;
    if (c >= 0x1p31F) sum = last;
    else if (c <= -0x1p31F) sum = -half;
    else if (!std::isnan(c)) sum = Integer(static_cast<long long>(c));
    for (std::size_t i = 0; i < a.size(); ++i) {
        sum += Integer(std::lround(a[i])) * std::lround(b[i]);
        const bool ends = (i + 1) % static_cast<std::size_t>(m.products) == 0 || i + 1 == a.size();
        if (ends && m.steps == "clamped") sum = sum > last ? last : sum < -half ? Integer(-half) : sum;
    }
    if (m.steps == "wrapped") {
        sum = (sum % modulus + modulus) % modulus;
        if (sum >= half) sum -= modulus;
    }
    return std::bit_cast<std::uint32_t>(static_cast<float>(sum.convert_to<long long>()));
}

/// The same over all of a and b, for rows whose steps are not fused.
inline std::uint32_t dot_in_steps(const Matrix& m, const std::vector<float>& a, const std::vector<float>& b, float c) {
    const bool flushes = m.steps != "floored" && m.steps != "halves";
    const auto n = static_cast<std::size_t>(m.products);
    if (flushes && std::fabs(c) < 0x1p-126F) c = std::copysign(0.0F, c);
    for (std::size_t begin = 0; begin < a.size(); begin += n) {
        std::vector<float> x(n), y(n);
        std::vector<Aligned> products;
        for (std::size_t i = 0; i < n; ++i) {
            if (begin + i < a.size()) x[i] = a[begin + i], y[i] = b[begin + i];
            for (float* v : {&x[i], &y[i]}) {
                if (m.a == "tf32") *v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*v) & 0xffffe000);
                if (flushes && std::fabs(*v) < std::ldexp(1.0F, 1 - find(m.a).bias)) *v = std::copysign(0.0F, *v);
            }
            products.push_back(multiply(enter(find(m.a), read(x[i])), enter(find(m.b), read(y[i]))));
        }
        c = flushes ? flushed_step(m, x, y, c) : amd_step(m, products, c);
    }
    return std::isnan(c) ? 0x7fc00000 : std::bit_cast<std::uint32_t>(c);
}

/// The FP32 bits of a . b + c on that hardware; a and b are read in the formats m.a and m.b.
inline std::uint32_t dot(const Matrix& m, const std::vector<float>& a, const std::vector<float>& b, float c,
                         const Scales& scales = {}) {
    if (m.steps == "wrapped" || m.steps == "clamped") return integer_dot(m, a, b, c);
    if (m.steps != "fused") return dot_in_steps(m, a, b, c);
    const auto operand = [&](const std::string& format, float x) {
        // TF32 operands are FP32 words whose last 13 bits are ignored.
        if (format == "tf32") x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffffe000);
        return enter(find(m.is_mma_fp8 ? "fp16" : format), read(x)); // mma.sync first converts FP8
    };
    const auto take = [&](const std::vector<std::size_t>& which, float sum) {
        std::vector<Aligned> terms, group;
        for (const std::size_t k : which) {
            const bool inside = k < a.size();
            group.push_back(multiply(operand(m.a, inside ? a[k] : 0), operand(m.b, inside ? b[k] : 0)));
            if (m.group == 0) {
                if (inside) scales.apply(group.back(), k);
                terms.push_back(group.back());
            } else if ((k + 1) % static_cast<std::size_t>(m.group) == 0) {
                const std::size_t first = k + 1 - static_cast<std::size_t>(m.group);
                terms.push_back(first < a.size() ? exact_group(group) : Aligned{});
                if (first < a.size()) scales.apply(terms.back(), first);
                group.clear();
            }
        }
        return std::bit_cast<float>(step(m, terms, sum));
    };
    const auto n = static_cast<std::size_t>(m.products);
    for (std::size_t begin = 0; begin < a.size(); begin += m.is_mma_fp8 ? 32 : n) {
        std::vector<std::size_t> first, second;
        for (std::size_t k = begin; k < begin + (m.is_mma_fp8 ? 32 : n); ++k)
            (m.is_mma_fp8 && k % 4 >= 2 ? second : first).push_back(k);
        if (m.is_mma_fp8) c = std::bit_cast<float>(add(m.result, take(second, take(first, 0)), c));
        else c = take(first, c);
    }
    return std::bit_cast<std::uint32_t>(c);
}

} // namespace oracle
