#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/findings/mismatch.h>

#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

/// Sums over positions; logits have a row for each. Tokens below 0 are left out. Without Python's lock.
template <class T>
std::string of_logits(const Array<T>& training, const Array<T>& serving, const Array<std::int64_t>& tokens) {
    const std::size_t vocabulary = training.shape(1);
    const nb::gil_scoped_release release;
    MismatchSum sum;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        if (const std::int64_t token = tokens.data()[i]; token >= 0)
            sum.add(span_of(training).subspan(i * vocabulary, vocabulary),
                    span_of(serving).subspan(i * vocabulary, vocabulary), static_cast<std::size_t>(token));
    return json_of(sum.mean()).dump();
}

template <class T>
void bind_logits(nb::module_& m) {
    m.def("mismatch_of_logits", &of_logits<T>, nb::arg("training").noconvert(), nb::arg("serving").noconvert(),
          nb::arg("tokens").noconvert(), InEnvironment());
}

std::string of_log_probabilities(const Array<double>& training, const Array<double>& serving) {
    const nb::gil_scoped_release release;
    MismatchSum sum;
    for (std::size_t i = 0; i < training.size(); ++i) sum.add(training.data()[i], serving.data()[i]);
    return json_of(sum.mean()).dump();
}

} // namespace

void bind_mismatch(nb::module_& m) {
    bind_logits<float>(m);
    bind_logits<double>(m);
    m.def("mismatch_of_log_probabilities", &of_log_probabilities, nb::arg("training").noconvert(),
          nb::arg("serving").noconvert(), InEnvironment());
}

} // namespace amp::python
