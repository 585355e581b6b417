#include <ampscope/sim/findings/detail/fit_advice.h>
#include <ampscope/sim/findings/detail/kind_records.h>

#include <ampscope/sim/base/text.h>

#include <algorithm>

namespace amp::detail {

namespace {

/// The formats in which tensors of such kinds are used: FP8 has E5M2 for gradients and E4M3 for what they are gradients
/// of, while FP16 is what a forward pass overflows.
std::vector<FormatSpec> judged_formats(const KindGroup& group) {
    if (group.kinds == gradient_kinds) return {format("e5m2")};
    return {format("e4m3"), format("fp16")};
}

/// The name of the tensor for which `number` is largest, the first of them; "" if it is 0 for all.
template <class Tensors, class Number>
std::string largest_by(const Tensors& tensors, const Number& number) {
    std::uint64_t most = 0;
    std::string name;
    for (const auto& [own, tensor] : tensors)
        if (const std::uint64_t n = number(tensor); n > most) {
            most = n;
            name = printable(own);
        }
    return name;
}

} // namespace

KindRecords::KindRecords(double limit) : limit_(limit) {
    for (std::size_t k = 0; k < kinds_.size(); ++k) kinds_[k].formats = judged_formats(kind_groups[k]);
}

void KindRecords::add(TensorKind kind, const std::string& tensor, const MagnitudeHistogram& magnitudes) {
    Kind& sum = kinds_[static_cast<std::size_t>(&group_of(kind) - kind_groups.data())];
    if (!is_gradient(kind)) sum.magnitudes.merge(magnitudes);
    Tensor& own = sum.tensors[tensor];
    own.fits.resize(sum.formats.size());
    for (std::size_t f = 0; f < own.fits.size(); ++f)
        own.fits[f].merge(fit_of(magnitudes, {}, sum.formats[f], {}, limit_));
    if (!magnitudes.rows.empty()) own.largest = std::max(own.largest, magnitudes.rows.rbegin()->first);
}

KindFit KindRecords::fit_in(const Kind& kind, std::size_t format, FitFacts facts) const {
    const Tensor* largest = nullptr;
    for (const auto& [name, tensor] : kind.tensors) {
        const FormatFit& fit = tensor.fits[format];
        facts.fit.merge(fit);
        if (fit.overflowing == 0 || (largest != nullptr && largest->largest >= tensor.largest)) continue;
        largest = &tensor;
        facts.largest = printable(name);
        facts.largest_value = "below " + amp::power_of_two(tensor.largest + 1);
    }
    facts.format = kind.formats[format];
    facts.worst = largest_by(kind.tensors, [&](const Tensor& t) { return t.fits[format].unscaled.underflow; });
    facts.worst_scaled = largest_by(kind.tensors, [&](const Tensor& t) { return t.fits[format].scaled.underflow; });
    facts.limit = limit_;
    return {facts.format, facts.fit, fit_advice(facts)};
}

std::vector<KindRecord> KindRecords::records(const MagnitudeHistogram& gradients, const Censoring& censoring) const {
    std::vector<KindRecord> records;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const KindGroup& group = kind_groups[k];
        if (kinds_[k].tensors.empty()) continue;
        const bool of_gradients = group.kinds == gradient_kinds;
        KindRecord record{&group, of_gradients ? gradients : kinds_[k].magnitudes, {}};
        const FitFacts facts{.nonzero = record.magnitudes.nonzero(),
                             .censoring = of_gradients ? censoring : Censoring{},
                             .group = group.name,
                             .noun = group.noun};
        for (std::size_t f = 0; f < kinds_[k].formats.size(); ++f) record.fits.push_back(fit_in(kinds_[k], f, facts));
        records.push_back(std::move(record));
    }
    const bool only_gradients = records.size() == 1 && records.front().group->kinds == gradient_kinds;
    return only_gradients ? std::vector<KindRecord>() : records;
}

} // namespace amp::detail
