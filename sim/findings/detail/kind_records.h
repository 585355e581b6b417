// Collects, line by line, how formats hold the tensors of each kind in a run.
#pragma once

#include <ampscope/sim/findings/detail/fit_advice.h>
#include <ampscope/sim/findings/recorded_run.h>

#include <map>

namespace amp::detail {

class KindRecords {
  public:
    /// `limit`: of underflow / nonzero in a tensor that a format holds.
    explicit KindRecords(double limit);
    /// Adds a tensor of one step, without its loss scale.
    void add(TensorKind kind, const std::string& tensor, const MagnitudeHistogram& magnitudes);
    /// What was added, with advice; nothing if it is only gradients, whose magnitudes are these in all, and of which
    /// the records hide so much.
    [[nodiscard]] std::vector<KindRecord> records(const MagnitudeHistogram& gradients,
                                                  const Censoring& censoring) const;

  private:
    /// One tensor over its steps: a fit for each format of its kind, and the binade of its largest magnitude.
    struct Tensor {
        std::vector<FormatFit> fits;
        int largest = -20'000;
    };
    struct Kind {
        std::vector<FormatSpec> formats; ///< formats in which such tensors are used
        MagnitudeHistogram magnitudes;   ///< empty for gradients
        std::map<std::string, Tensor> tensors;
    };

    /// How a format holds all tensors of a kind; `facts` has the names of the kind and the number of its elements.
    [[nodiscard]] KindFit fit_in(const Kind& kind, std::size_t format, FitFacts facts) const;

    double limit_;
    std::array<Kind, kind_groups.size()> kinds_{};
};

} // namespace amp::detail
