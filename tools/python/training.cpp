#include <ampscope/tools/python/bind.h>

#include <ampscope/sim/train/data/dataset.h>
#include <ampscope/tools/amp-train/report.h>
#include <ampscope/tools/output.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amp::python {

namespace {

using namespace train_tool;

TrainToolOptions parsed(const std::vector<std::string>& words, const char* function) {
    std::vector<std::string> all = {"amp-train"};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    TrainToolOptions options;
    if (parse_train_command(static_cast<int>(argv.size()), argv.data(), options))
        throw std::invalid_argument(fmt::format("{}: help, version and list are the command's alone", function));
    return options;
}

/// What amp-train does with these words, and what its --json says. Ctrl-C stops it between steps.
nb::object train(const std::vector<std::string>& words) {
    const TrainToolOptions options = parsed(words, "train");
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

/// The data that amp-train, given the same words, trains on: the batch of each step.
class Batches {
  public:
    explicit Batches(const std::vector<std::string>& words) {
        const TrainToolOptions options = parsed(words, "batches");
        run_ = options.runs.front();
        steps_ = options.experiment.steps;
        data_ = dataset_of(options, run_);
    }

    [[nodiscard]] std::int64_t size() const { return steps_; }

    /// (inputs, targets) of a step: of all its replicas and micro-batches, one after the other.
    [[nodiscard]] std::pair<Result<float>, Result<float>> operator[](std::int64_t step) const {
        const std::int64_t n = run_.batch * run_.replicas * run_.micro_batches;
        const auto array = [&](Shape shape) {
            shape.insert(shape.begin(), n);
            return filled<float>({shape.begin(), shape.end()}, [](std::span<float> x) { std::ranges::fill(x, 0.0F); });
        };
        std::pair batch(array(data_.input), array(data_.target));
        Shuffle shuffle(run_.seed, data_.training);
        const nb::gil_scoped_release release;
        read_batch(data_, step * n, n, &shuffle, batch.first.data(), batch.second.data());
        return batch;
    }

  private:
    TrainOptions run_;
    std::int64_t steps_ = 0;
    Dataset data_;
};

} // namespace

void bind_training(nb::module_& m) {
    m.def("train", &train, nb::arg("words"), InEnvironment());
    nb::class_<Batches>(m, "Batches")
        .def(nb::init<const std::vector<std::string>&>(), nb::arg("words"), InEnvironment())
        .def("__len__", &Batches::size)
        .def(
            "__getitem__",
            [](const Batches& b, std::int64_t step) {
                if (step < 0 || step >= b.size()) throw nb::index_error("batches: no such step");
                return b[step];
            },
            nb::arg("step"), InEnvironment());
    std::vector<std::string> names;
    for (const PrecisionRow& row : precisions()) names.emplace_back(row.name);
    m.attr("precisions") = nb::cast(names);
}

} // namespace amp::python
