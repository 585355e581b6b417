#include <ampscope/tools/python/bind.h>

#include <ampscope/tools/amp-train/report.h>
#include <ampscope/tools/output.h>

#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

using namespace train_tool;

/// What amp-train does with these words, and what its --json says. Ctrl-C stops it between steps.
nb::object train(const std::vector<std::string>& words) {
    std::vector<std::string> all = {"amp-train"};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    TrainToolOptions options;
    if (parse_train_command(static_cast<int>(argv.size()), argv.data(), options))
        throw std::invalid_argument("train: help, version and list are the command's alone");
    if (options.explain || options.memory || !options.evaluate.empty() || !options.json.empty())
        throw std::invalid_argument("train: explain, memory, evaluate and json are the command's alone");
    const Dataset data = dataset_of(options, options.runs.front());
    Experiment experiment(options.runs, data, options.experiment, origin_of("amp-train"));
    for (const auto& lines : {options.notes, experiment.warnings()})
        for (const std::string& line : lines)
            if (PyErr_WarnEx(PyExc_RuntimeWarning, line.c_str(), 2) != 0) throw nb::python_error();
    while (!experiment.finished()) {
        {
            const nb::gil_scoped_release release;
            experiment.step();
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return from_json(json_text(json_of(finish(experiment, options.experiment), data, options.experiment)));
}

} // namespace

void bind_training(nb::module_& m) {
    m.def("train", &train, nb::arg("words"), InEnvironment());
    std::vector<std::string> names;
    for (const PrecisionRow& row : precisions()) names.emplace_back(row.name);
    m.attr("precisions") = nb::cast(names);
}

} // namespace amp::python
