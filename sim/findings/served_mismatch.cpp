#include <ampscope/sim/findings/served_mismatch.h>

#include <ampscope/formats/environment.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace amp {

namespace {

/// One op's result in both networks; sums over what was compared.
struct Pair {
    std::string_view op;
    std::string tensor;
    TensorId training, serving;
    double error = 0, size = 0; ///< sums of squares
    std::uint64_t differing = 0, elements = 0;

    [[nodiscard]] double relative() const {
        if (error == 0) return 0; // signs of zeros
        const double e = std::sqrt(error / size);
        return std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
    }
    void add(std::span<const float> y, std::span<const float> x) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double difference = static_cast<double>(x[i]) - y[i];
            error += difference * difference;
            size += static_cast<double>(y[i]) * y[i];
            differing += std::bit_cast<std::uint32_t>(x[i]) != std::bit_cast<std::uint32_t>(y[i]) ? 1 : 0;
        }
        elements += x.size();
    }
};

/// The elements of part `part` of a tensor of the whole batch; all of one that does not grow with the batch.
template <class Element>
std::span<Element> part_of(std::span<Element> whole, std::size_t count, std::int64_t part) {
    return whole.size() == count ? whole : whole.subspan(static_cast<std::size_t>(part) * count, count);
}

/// Whether an op's results are numbers of their own: not those of another in another order, nor codes, which mean
/// nothing without their scales and are judged by the products that read them.
bool computes(const Op& op) {
    return !std::holds_alternative<op::Transpose>(op) && !std::holds_alternative<op::Concat>(op) &&
           !std::holds_alternative<op::Split>(op) && !std::holds_alternative<op::Quantize>(op);
}

/// What both compute under the same name, in the order of training, up to the logits.
std::vector<Pair> pairs_of(const LoadedNetwork& training, const LoadedNetwork& serving, std::int64_t parts) {
    std::map<std::string_view, TensorId> by_name;
    for (std::size_t i = 0; i < serving.program.tensors.size(); ++i)
        by_name[serving.program.tensors[i].name] = {static_cast<std::int32_t>(i)};
    std::vector<Pair> pairs;
    for (const Instruction& i : training.program.forward)
        for (const TensorId out : outputs_of(i.op)) {
            const TensorInfo& info = training.program[out];
            if (const auto twin = by_name.find(info.name); twin != by_name.end() && computes(i.op) && !info.storage) {
                const std::int64_t count = serving.program[twin->second].count();
                if (info.count() == count || info.count() == count * parts)
                    pairs.push_back(
                        {.op = name_of(i.op), .tensor = info.name, .training = out, .serving = twin->second});
            }
            if (out.index == training.network.outputs.index) return pairs;
        }
    return pairs;
}

class SideBySide {
  public:
    SideBySide(const TrainedNetwork& trained, const Precision& training, const ServingSetting& setting, int threads)
        : data_(trained.data), whole_(trained.options.batch), batch_(setting.batch == 0 ? whole_ : setting.batch),
          training_(trained, training, whole_, threads),
          serving_(trained, setting.precision, batch_, threads, setting.attention),
          pairs_(pairs_of(training_, serving_, whole_ / batch_)) {}

    void compare_batch(std::int64_t b) {
        const std::int64_t examples = load_validation_batch(*training_.backend, training_.network, data_, b, whole_);
        replay(*training_.backend, training_.program.forward);
        for (std::int64_t part = 0; part * batch_ < examples; ++part) {
            copy_part(training_.network.inputs, serving_.network.inputs, part);
            copy_part(training_.network.targets, serving_.network.targets, part);
            replay(*serving_.backend, serving_.program.forward);
            add_probabilities(part);
            for (Pair& pair : pairs_) {
                const std::span<const float> x = serving_.backend->read(pair.serving);
                pair.add(part_of(training_.backend->read(pair.training), x.size(), part), x);
            }
        }
    }

    [[nodiscard]] Mismatch mismatch(const std::string& name) const {
        Mismatch m = sum_.mean();
        m.serving = name;
        m.batch = batch_;
        for (const Pair& p : pairs_)
            if (p.differing > 0) m.ops.push_back({std::string(p.op), p.tensor, p.relative(), p.differing, p.elements});
        return m;
    }

  private:
    void copy_part(TensorId from, TensorId to, std::int64_t part) {
        const std::span<float> x = (*serving_.backend)[to];
        std::ranges::copy(part_of(training_.backend->read(from), x.size(), part), x.begin());
    }

    void add_probabilities(std::int64_t part) {
        const std::span<const float> q = serving_.backend->read(serving_.network.outputs),
                                     targets = serving_.backend->read(serving_.network.targets),
                                     p = part_of(training_.backend->read(training_.network.outputs), q.size(), part);
        const auto classes = static_cast<std::size_t>(data_.classes);
        for (std::size_t i = 0; i < targets.size(); ++i)
            if (targets[i] >= 0)
                sum_.add(p.subspan(i * classes, classes), q.subspan(i * classes, classes),
                         static_cast<std::size_t>(targets[i]));
    }

    const Dataset& data_;
    std::int64_t whole_, batch_; // examples of training, and of serving
    LoadedNetwork training_, serving_;
    std::vector<Pair> pairs_;
    MismatchSum sum_;
};

} // namespace

Mismatch measure_mismatch(const TrainedNetwork& trained, const Precision& training, const ServingSetting& setting,
                          int threads, const Progress& progress) {
    const FloatEnvironment environment;
    const std::int64_t whole = trained.options.batch;
    if (trained.data.classes == 0)
        throw std::invalid_argument(
            fmt::format("a {} on {} gives no probabilities to compare", trained.options.model.name, trained.data.name));
    if (setting.batch != 0 && whole % setting.batch != 0)
        throw std::invalid_argument(
            fmt::format("batches of {} do not divide those of training, {}", setting.batch, whole));
    SideBySide both(trained, training, setting, threads);
    for (std::int64_t b = 0; b < validation_batches(trained.data, whole); ++b) {
        both.compare_batch(b);
        if (progress) progress(1);
    }
    return both.mismatch(setting.name);
}

} // namespace amp
