#include <ampscope/sim/analysis/tensor_diff.h>

#include <ampscope/sim/analysis/number_reader.h>

#include <cmath>

namespace amp {

namespace {

/// Digits after the leading one, and the smallest unit in the last place.
struct Precision {
    int fraction_bits = 52;
    double least_ulp = 0;
};

Precision precision_of(DType dtype, double recorded_scale) {
    if (info(dtype).format.empty()) return {};
    const FormatSpec f = format(info(dtype).format);
    return {f.fraction_bits, std::ldexp(1.0, f.min_subnormal_exponent()) / recorded_scale};
}

Precision coarser(const Precision& a, const Precision& b) {
    if (a.fraction_bits != b.fraction_bits) return a.fraction_bits < b.fraction_bits ? a : b;
    return {a.fraction_bits, std::max(a.least_ulp, b.least_ulp)};
}

DiffClass class_of(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? DiffClass::equal : DiffClass::nan;
    if (a == b) return std::signbit(a) == std::signbit(b) ? DiffClass::equal : DiffClass::zero_sign;
    if (std::isinf(a) || std::isinf(b)) return DiffClass::inf;
    if (a == 0 || b == 0) return DiffClass::zero;
    return std::signbit(a) != std::signbit(b) ? DiffClass::sign : DiffClass::finite;
}

bool is_worse(const DifferingElement& a, const DifferingElement& b) {
    return a.ulps != b.ulps ? a.ulps > b.ulps : a.index < b.index;
}

class BlockDiff {
  public:
    BlockDiff(const Precision& precision, std::size_t keep) : precision_(precision), keep_(keep) {}

    void add(std::uint64_t index, const StoredNumber& a, const StoredNumber& b) {
        const DiffClass c = class_of(a.value, b.value);
        ++diff_.counts[static_cast<std::size_t>(c)];
        const bool finite = std::isfinite(a.value) && std::isfinite(b.value);
        if (finite) {
            diff_.a_squares += a.value * a.value;
            diff_.b_squares += b.value * b.value;
        }
        if (c == DiffClass::equal) return;
        DifferingElement e{index, a.bits, b.bits, a.value, b.value, HUGE_VAL};
        if (finite) e.ulps = measure(a.value, b.value);
        if (!diff_.first) diff_.first = e;
        if (diff_.worst.size() < keep_ || (keep_ > 0 && is_worse(e, diff_.worst.back()))) note(e);
    }
    [[nodiscard]] TensorDiff result() { return std::move(diff_); }

  private:
    /// Counts the distance of two finite values; returns it in ulps.
    double measure(double a, double b) {
        const double distance = std::fabs(a - b), larger = std::max(std::fabs(a), std::fabs(b));
        diff_.difference_squares += distance * distance;
        if (distance == 0) return 0; // zeros
        const double ulp =
            std::max(std::ldexp(1.0, std::ilogb(larger) - precision_.fraction_bits), precision_.least_ulp);
        const double ulps = distance / ulp, relative = distance / larger;
        int exponent = 0;
        const double mantissa = std::frexp(ulps, &exponent); // [0.5, 1)
        ++diff_.ulps[mantissa == 0.5 ? exponent - 1 : exponent];
        ++diff_.relative[std::ilogb(relative)];
        diff_.max_ulps = std::max(diff_.max_ulps, ulps);
        diff_.max_relative = std::max(diff_.max_relative, relative);
        diff_.max_absolute = std::max(diff_.max_absolute, distance);
        return ulps;
    }
    void note(const DifferingElement& e) {
        diff_.worst.insert(std::ranges::upper_bound(diff_.worst, e, is_worse), e);
        if (diff_.worst.size() > keep_) diff_.worst.pop_back();
    }

    Precision precision_;
    std::size_t keep_;
    TensorDiff diff_;
};

void check_pair(const DiffSide& a, const DiffSide& b) {
    const TensorEntry &x = a.file.tensors()[a.tensor], &y = b.file.tensors()[b.tensor];
    if (info(x.dtype).numbers() != info(y.dtype).numbers())
        throw FileError(b.file.path(), y.name + ": complex numbers and real ones cannot be paired");
    if (x.count != y.count)
        throw FileError(b.file.path(), y.name + ": " + std::to_string(y.count) + " elements, the other has " +
                                           std::to_string(x.count));
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
    return difference_squares == 0 ? 0 : std::sqrt(difference_squares) / std::sqrt(a_squares);
}

void TensorDiff::merge(const TensorDiff& later, std::size_t keep) {
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
    std::ranges::stable_sort(worst, is_worse);
    if (worst.size() > keep) worst.resize(keep);
}

TensorDiff compare_tensors(const DiffSide& a, const DiffSide& b, std::size_t keep, int threads,
                           const Progress& progress) {
    check_pair(a, b);
    const NumberReader x(a.file, a.tensor), y(b.file, b.tensor);
    const Precision precision =
        coarser(precision_of(x.dtype(), a.recorded_scale), precision_of(y.dtype(), b.recorded_scale));
    const std::uint64_t numbers = x.numbers();
    std::vector<TensorDiff> blocks((numbers + sum_block - 1) / sum_block);
    std::mutex mutex;
    for_each_chunk(numbers, sum_block, x.is_stream() || y.is_stream() ? 1 : threads,
                   [&](std::uint64_t begin, std::uint64_t end) {
                       const std::vector<StoredNumber> from = x.read(begin, end), to = y.read(begin, end);
                       BlockDiff block(precision, keep);
                       for (std::size_t i = 0; i < from.size(); ++i)
                           block.add(begin + i, {from[i].bits, from[i].value / a.recorded_scale},
                                     {to[i].bits, to[i].value / b.recorded_scale});
                       blocks[begin / sum_block] = block.result();
                       if (!progress) return;
                       const std::lock_guard lock(mutex);
                       progress(end - begin);
                   });
    TensorDiff total;
    for (const TensorDiff& block : blocks) total.merge(block, keep);
    return total;
}

} // namespace amp
