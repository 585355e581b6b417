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

void KindRecords::add(TensorKind kind, const std::string& tensor, const MagnitudeHistogram& magnitudes) {
    const KindGroup& group = group_of(kind);
    Kind& sum = kinds_[static_cast<std::size_t>(&group - kind_groups.data())];
    if (!is_gradient(kind)) sum.magnitudes.merge(magnitudes);
    Tensor& own = sum.tensors[tensor];
    const std::vector<FormatSpec> formats = judged_formats(group);
    own.fits.resize(formats.size());
    for (std::size_t f = 0; f < formats.size(); ++f) own.fits[f].merge(fit_of(magnitudes, {}, formats[f], {}, limit_));
    if (!magnitudes.rows.empty()) own.largest = std::max(own.largest, magnitudes.rows.rbegin()->first);
}

std::vector<KindRecord> KindRecords::records(const MagnitudeHistogram& gradients) const {
    std::vector<KindRecord> records;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const Kind& kind = kinds_[k];
        if (kind.tensors.empty()) continue;
        const bool of_gradients = kind_groups[k].kinds == gradient_kinds;
        KindRecord record{
            .group = &kind_groups[k], .magnitudes = of_gradients ? gradients : kind.magnitudes, .fits = {}};
        const std::vector<FormatSpec> formats = judged_formats(*record.group);
        for (std::size_t f = 0; f < formats.size(); ++f) {
            KindFit of{.format = formats[f]};
            const Tensor* largest = nullptr;
            FitFacts facts{.format = of.format,
                           .nonzero = record.magnitudes.nonzero(),
                           .group = record.group->name,
                           .noun = record.group->noun,
                           .limit = limit_};
            for (const auto& [name, tensor] : kind.tensors) {
                of.fit.merge(tensor.fits[f]);
                if (tensor.fits[f].overflowing == 0 || (largest != nullptr && largest->largest >= tensor.largest))
                    continue;
                largest = &tensor;
                facts.largest = printable(name);
                facts.largest_value = "below " + amp::power_of_two(tensor.largest + 1);
            }
            facts.fit = of.fit;
            facts.worst = largest_by(kind.tensors, [&](const Tensor& t) { return t.fits[f].unscaled.underflow; });
            facts.worst_scaled = largest_by(kind.tensors, [&](const Tensor& t) { return t.fits[f].scaled.underflow; });
            of.advice = fit_advice(facts);
            record.fits.push_back(std::move(of));
        }
        records.push_back(std::move(record));
    }
    const bool only_gradients = records.size() == 1 && records.front().group->kinds == gradient_kinds;
    return only_gradients ? std::vector<KindRecord>() : records;
}

} // namespace amp::detail
