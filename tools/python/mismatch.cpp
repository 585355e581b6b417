#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/findings/mismatch.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

/// Sums over positions; logits have a row for each. Tokens below 0 are left out. Without Python's lock.
std::string of_logits(const Array<float>& training, const Array<float>& serving, const Array<std::int64_t>& tokens) {
    const std::size_t vocabulary = training.shape(1);
    const nb::gil_scoped_release release;
    MismatchSum sum;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t token = tokens.data()[i];
        if (token < 0) continue;
        if (static_cast<std::uint64_t>(token) >= vocabulary)
            throw std::invalid_argument(fmt::format("tokens: {} is no token of {}", token, vocabulary));
        sum.add(span_of(training).subspan(i * vocabulary, vocabulary),
                span_of(serving).subspan(i * vocabulary, vocabulary), static_cast<std::size_t>(token));
    }
    return json_of(sum.mean()).dump();
}

std::string of_log_probabilities(const Array<double>& training, const Array<double>& serving) {
    const nb::gil_scoped_release release;
    MismatchSum sum;
    for (std::size_t i = 0; i < training.size(); ++i) sum.add(training.data()[i], serving.data()[i]);
    return json_of(sum.mean()).dump();
}

} // namespace

void bind_mismatch(nb::module_& m) {
    m.def("mismatch_of_logits", &of_logits, nb::arg("training").noconvert(), nb::arg("serving").noconvert(),
          nb::arg("tokens").noconvert(), InEnvironment());
    m.def("mismatch_of_log_probabilities", &of_log_probabilities, nb::arg("training").noconvert(),
          nb::arg("serving").noconvert(), InEnvironment());
}

} // namespace amp::python
