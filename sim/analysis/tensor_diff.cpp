#include <ampscope/sim/analysis/tensor_diff.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/measure.h>
#include <ampscope/sim/analysis/number_reader.h>
#include <ampscope/sim/base/text.h>

#include <cmath>

namespace amp {

namespace {

/// The number of fraction bits of a type, and its smallest unit in the last place.
struct Precision {
    int fraction_bits = 0;
    Unpacked least_ulp{};
};

Unpacked exact_power_of_two(int exponent) {
    return normalised({.kind = Kind::finite, .exponent = exponent, .significand = 1});
}

Precision precision_of(DType dtype) {
    const DTypeInfo& type = info(dtype);
    if (type.kind == NumberKind::float64) return {52, exact_power_of_two(-1074)};
    if (type.format.empty()) return {type.bits - 1, exact_power_of_two(0)}; // integers
    const FormatSpec f = format(type.format);
    return {f.fraction_bits, exact_power_of_two(f.min_subnormal_exponent())};
}

Precision coarser(const Precision& a, const Precision& b) {
    if (a.fraction_bits != b.fraction_bits) return a.fraction_bits < b.fraction_bits ? a : b;
    return is_smaller(a.least_ulp, b.least_ulp) ? b : a;
}

DiffClass class_of(const Unpacked& a, const Unpacked& b) {
    if (a.is_nan() || b.is_nan()) return a.is_nan() && b.is_nan() ? DiffClass::equal : DiffClass::nan;
    const bool same_sign = a.sign == b.sign;
    if (a.kind == Kind::infinity || b.kind == Kind::infinity)
        return a.kind == b.kind && same_sign ? DiffClass::equal : DiffClass::inf;
    if (a.kind == Kind::zero && b.kind == Kind::zero) return same_sign ? DiffClass::equal : DiffClass::zero_sign;
    if (a.kind == Kind::zero || b.kind == Kind::zero) return DiffClass::zero;
    if (!same_sign) return DiffClass::sign;
    return is_smaller(a, b) || is_smaller(b, a) ? DiffClass::finite : DiffClass::equal;
}

/// The smallest k with d <= 2^k units.
int ceil_log2(const Unpacked& d, const Unpacked& unit) {
    return d.exponent - unit.exponent + (d.significand > unit.significand ? 1 : 0);
}

/// The largest k with 2^k <= d / x.
int floor_log2(const Unpacked& d, const Unpacked& x) {
    return d.exponent - x.exponent - (d.significand < x.significand ? 1 : 0);
}

bool differs_more(const DifferingElement& a, const DifferingElement& b) {
    return a.ulps != b.ulps ? a.ulps > b.ulps : a.index < b.index;
}

/// Makes the numbers of both sides comparable: those of b are brought to the recorded scale of a. They stay as they are
/// if the scales are equal, and keep 64 bits if the ratio is not a power of two.
class Pairing {
  public:
    Pairing(DType a, double a_scale, DType b, double b_scale) : a_scale_(a_scale), b_scale_(b_scale) {
        Precision other = precision_of(b);
        other.least_ulp = to_a(other.least_ulp);
        precision_ = coarser(precision_of(a), other);
    }

    [[nodiscard]] Unpacked to_a(const Unpacked& b) const {
        return a_scale_ == b_scale_ || b.kind != Kind::finite ? b : normalised(scaled(b, a_scale_, b_scale_));
    }
    /// The unit in the last place at the magnitude of x.
    [[nodiscard]] Unpacked ulp_at(const Unpacked& x) const {
        const Unpacked ulp = exact_power_of_two(x.exponent + 63 - precision_.fraction_bits);
        return is_smaller(ulp, precision_.least_ulp) ? precision_.least_ulp : ulp;
    }
    [[nodiscard]] double a_scale() const { return a_scale_; }
    [[nodiscard]] double b_scale() const { return b_scale_; }

  private:
    double a_scale_, b_scale_;
    Precision precision_;
};

class BlockDiff {
  public:
    BlockDiff(const Pairing& pairing, std::size_t keep) : pairing_(pairing), keep_(keep) {}

    void add(std::uint64_t index, const StoredNumber& x, const StoredNumber& y) {
        const Unpacked a = normalised(x.number), b = normalised(pairing_.to_a(y.number));
        const DiffClass c = class_of(a, b);
        ++diff_.counts[static_cast<std::size_t>(c)];
        const auto is_finite = [](const Unpacked& u) { return u.kind == Kind::finite || u.kind == Kind::zero; };
        const bool finite = is_finite(a) && is_finite(b);
        if (finite) {
            add_square(diff_.a_squares, a, pairing_.a_scale());
            add_square(diff_.b_squares, b, pairing_.a_scale());
        }
        if (c == DiffClass::equal) return;
        DifferingElement e{index,   x.bits, y.bits, x.value() / pairing_.a_scale(), y.value() / pairing_.b_scale(),
                           HUGE_VAL};
        if (finite) e.ulps = c == DiffClass::zero_sign ? 0 : measure(a, b);
        if (!diff_.first) diff_.first = e;
        if (diff_.worst.size() < keep_ || (keep_ > 0 && differs_more(e, diff_.worst.back()))) note(e);
    }
    [[nodiscard]] TensorDiff result() {
        if (largest_.kind == Kind::finite) diff_.max_absolute = value_of(scaled(largest_, 1, pairing_.a_scale()));
        return std::move(diff_);
    }

  private:
    static void add_square(SquareSum& sum, const Unpacked& x, double scale) {
        int k = 0;
        const double m = std::frexp(scale, &k);
        sum.add(static_cast<double>(x.significand) / m, x.exponent - k);
    }
    /// Records the distance of two finite values that differ; returns it in ulps.
    double measure(const Unpacked& a, const Unpacked& b) {
        const Unpacked d = distance(a, b), larger = is_smaller(a, b) ? b : a, ulp = pairing_.ulp_at(larger);
        const double ulps = ratio(d, ulp);
        add_square(diff_.difference_squares, d, pairing_.a_scale());
        ++diff_.ulps[ceil_log2(d, ulp)];
        ++diff_.relative[floor_log2(d, larger)];
        diff_.max_ulps = std::max(diff_.max_ulps, ulps);
        diff_.max_relative = std::max(diff_.max_relative, ratio(d, larger));
        if (is_smaller(largest_, d)) largest_ = d;
        return ulps;
    }
    void note(const DifferingElement& e) {
        diff_.worst.insert(std::ranges::upper_bound(diff_.worst, e, differs_more), e);
        if (diff_.worst.size() > keep_) diff_.worst.pop_back();
    }

    const Pairing& pairing_;
    std::size_t keep_;
    Unpacked largest_{}; ///< the largest distance so far
    TensorDiff diff_;
};

void check_pair(const DiffSide& a, const DiffSide& b) {
    const TensorEntry &x = a.file.tensors()[a.tensor], &y = b.file.tensors()[b.tensor];
    if (info(x.dtype).numbers() != info(y.dtype).numbers())
        throw FileError(b.file.path(), y.name + ": complex numbers and real ones cannot be paired");
    if (x.count != y.count)
        throw FileError(b.file.path(),
                        y.name + ": " + plural(y.count, "element") + ", the other has " + std::to_string(x.count));
    if (x.storage_order != y.storage_order)
        throw FileError(b.file.path(), y.name +
                                           ": its elements lie in another order than the other's (Fortran order, or a "
                                           "transposed view): save both in C order");
}

} // namespace

std::uint64_t TensorDiff::elements() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : counts) sum += n;
    return sum;
}

double TensorDiff::relative_norm() const {
    const FloatEnvironment environment;
    if (difference_squares.is_zero()) return 0;
    const auto [d, i] = difference_squares.root();
    const auto [a, j] = a_squares.root();
    return std::ldexp(d / a, i - j);
}

void TensorDiff::merge(const TensorDiff& later, std::size_t keep) {
    const FloatEnvironment environment;
    for (std::size_t c = 0; c < diff_classes; ++c) counts[c] += later.counts[c];
    for (const auto& [k, n] : later.ulps) ulps[k] += n;
    for (const auto& [k, n] : later.relative) relative[k] += n;
    max_ulps = std::max(max_ulps, later.max_ulps);
    max_relative = std::max(max_relative, later.max_relative);
    max_absolute = std::max(max_absolute, later.max_absolute);
    difference_squares += later.difference_squares;
    a_squares += later.a_squares;
    b_squares += later.b_squares;
    if (!first) first = later.first;
    worst.insert(worst.end(), later.worst.begin(), later.worst.end());
    std::ranges::stable_sort(worst, differs_more);
    if (worst.size() > keep) worst.resize(keep);
}

TensorDiff compare_tensors(const DiffSide& a, const DiffSide& b, std::size_t keep, int threads,
                           const Progress& progress) {
    const FloatEnvironment environment;
    check_pair(a, b);
    const NumberReader x(a.file, a.tensor), y(b.file, b.tensor);
    const Pairing pairing(x.dtype(), a.recorded_scale, y.dtype(), b.recorded_scale);
    const std::uint64_t numbers = x.numbers();
    constexpr std::uint64_t settled = 1024 * sum_block; // numbers after which blocks are added up
    TensorDiff total;
    BlockParts<TensorDiff> parts;
    const auto compare = [&](std::uint64_t begin, std::uint64_t end) {
        const std::vector<StoredNumber> from = x.read(begin, end), to = y.read(begin, end);
        BlockDiff block(pairing, keep);
        for (std::size_t i = 0; i < from.size(); ++i) block.add(begin + i, from[i], to[i]);
        parts.add(begin / sum_block, block.result());
    };
    std::mutex mutex;
    for (std::uint64_t first = 0; first < numbers; first += settled) {
        for_each_chunk(std::min(numbers - first, settled), sum_block, x.is_stream() || y.is_stream() ? 1 : threads,
                       [&](std::uint64_t begin, std::uint64_t end) {
                           compare(first + begin, first + end);
                           if (!progress) return;
                           const std::lock_guard lock(mutex);
                           progress(end - begin);
                       });
        parts.take([&](const TensorDiff& block) { total.merge(block, keep); });
    }
    return total;
}

} // namespace amp
