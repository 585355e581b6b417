// Each framework's loss scaler once more, written from its documentation in the number type it uses and sharing nothing
// with sim/optim/loss_scaler.h: the state machine is compared with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

namespace amp::test {

/// Settings of the frameworks; each twin uses those that its framework has.
struct Knobs {
    double init = 65536, growth = 2, backoff = 0.5, min = 0, max = std::numeric_limits<double>::infinity();
    std::int64_t interval = 3, hysteresis = 0;
    bool consecutive = false;     ///< DeepSpeed's consecutive_hysteresis
    std::int64_t clean_steps = 0; ///< counter of a loaded state
};

enum class Decision : std::uint8_t { step, skip, abort };

struct Twin {
    Twin() = default;
    Twin(const Twin&) = delete;
    Twin& operator=(const Twin&) = delete;
    virtual ~Twin() = default;
    virtual Decision update(bool overflow) = 0;
    [[nodiscard]] virtual double scale() const = 0;
    [[nodiscard]] virtual std::int64_t counter() const = 0;
    [[nodiscard]] virtual std::int64_t hysteresis() const { return 0; }
};

/// torch.amp.GradScaler; ShardedGradScaler with its scale on a GPU.
struct TorchTwin : Twin {
    float s;
    int t;
    Knobs k;
    explicit TorchTwin(const Knobs& knobs)
        : s(static_cast<float>(knobs.init)), t(static_cast<int>(knobs.clean_steps)), k(knobs) {}
    Decision update(bool overflow) override {
        if (overflow) {
            s = static_cast<float>(static_cast<double>(s) * k.backoff);
            t = 0;
            return Decision::skip;
        }
        if (t + 1 != k.interval) {
            t = t + 1;
            return Decision::step;
        }
        const float doubled = static_cast<float>(static_cast<double>(s) * k.growth);
        if (std::isfinite(doubled)) s = doubled;
        t = 0;
        return Decision::step;
    }
    [[nodiscard]] double scale() const override { return s; }
    [[nodiscard]] std::int64_t counter() const override { return t; }
};

/// FSDP's ShardedGradScaler with its scale on the CPU: multiplies an FP32 tensor in place.
struct ShardedCpuTwin : TorchTwin {
    using TorchTwin::TorchTwin;
    Decision update(bool overflow) override {
        if (overflow) {
            s *= static_cast<float>(k.backoff);
            t = 0;
            return Decision::skip;
        }
        ++t;
        if (t == k.interval) {
            s *= static_cast<float>(k.growth);
            t = 0;
        }
        return Decision::step;
    }
};

/// apex.amp's LossScaler: halves and doubles a Python float; a minimum is optional.
struct ApexTwin : Twin {
    double s;
    std::int64_t unskipped;
    Knobs k;
    explicit ApexTwin(const Knobs& knobs) : s(knobs.init), unskipped(knobs.clean_steps), k(knobs) {}
    Decision update(bool overflow) override {
        if (overflow) {
            s = k.min != 0 ? std::max(k.min, s / 2) : s / 2;
            unskipped = 0;
        } else {
            ++unskipped;
            if (unskipped == k.interval) {
                s = std::min(k.max, s * 2);
                unskipped = 0;
            }
        }
        return overflow ? Decision::skip : Decision::step;
    }
    [[nodiscard]] double scale() const override { return s; }
    [[nodiscard]] std::int64_t counter() const override { return unskipped; }
};

/// Apex's kernel update_scale_hysteresis: torch's rule after a count of consecutive overflows.
struct ApexHysteresisTwin : TorchTwin {
    int left;
    explicit ApexHysteresisTwin(const Knobs& knobs) : TorchTwin(knobs), left(static_cast<int>(knobs.hysteresis)) {}
    Decision update(bool overflow) override {
        if (!overflow) {
            left = static_cast<int>(k.hysteresis);
            return TorchTwin::update(false);
        }
        left -= 1;
        if (left <= 0) return TorchTwin::update(true);
        t = 0;
        return Decision::skip;
    }
    [[nodiscard]] std::int64_t hysteresis() const override { return left; }
};

/// DeepSpeed's DynamicLossScaler: counts iterations, and remembers the last overflow.
struct DeepSpeedTwin : Twin {
    double s;
    std::int64_t iteration = 0, last_overflow, h;
    Knobs k;
    explicit DeepSpeedTwin(const Knobs& knobs)
        : s(knobs.init), last_overflow(-1 - knobs.clean_steps), h(knobs.hysteresis), k(knobs) {}
    Decision update(bool overflow) override {
        if (overflow) {
            if (k.hysteresis == 1 || h == 1) {
                if (s == k.min) return Decision::abort;
                s = std::max(s / k.growth, k.min);
            } else {
                h -= 1;
            }
            last_overflow = iteration++;
            return Decision::skip;
        }
        if (k.consecutive) h = k.hysteresis;
        if ((iteration - last_overflow) % k.interval == 0) {
            if (!k.consecutive) h = k.hysteresis;
            s *= k.growth;
        }
        ++iteration;
        return Decision::step;
    }
    [[nodiscard]] double scale() const override { return s; }
    [[nodiscard]] std::int64_t counter() const override { return iteration - last_overflow - 1; }
    [[nodiscard]] std::int64_t hysteresis() const override { return h; }
};

/// DeepSpeed's FP16_Optimizer._update_scale.
struct DeepSpeedFusedTwin : DeepSpeedTwin {
    using DeepSpeedTwin::DeepSpeedTwin;
    Decision update(bool overflow) override {
        if (overflow) {
            s = std::max(s / k.growth, k.min);
            last_overflow = iteration;
        } else {
            const std::int64_t stable = iteration - last_overflow - 1;
            if (stable > 0 && stable % k.interval == 0) s *= k.growth;
        }
        ++iteration;
        return overflow ? Decision::skip : Decision::step;
    }
    [[nodiscard]] std::int64_t hysteresis() const override { return 0; }
};

/// Megatron-LM's DynamicGradScaler: all in FP32, with a hysteresis that only growth refills.
struct MegatronTwin : Twin {
    float s, growth, backoff, min;
    std::int64_t growth_tracker, hysteresis_tracker, interval, full;
    explicit MegatronTwin(const Knobs& k)
        : s(static_cast<float>(k.init)), growth(static_cast<float>(k.growth)), backoff(static_cast<float>(k.backoff)),
          min(static_cast<float>(k.min)), growth_tracker(k.clean_steps), hysteresis_tracker(k.hysteresis),
          interval(k.interval), full(k.hysteresis) {}
    Decision update(bool overflow) override {
        if (overflow) {
            growth_tracker = 0;
            hysteresis_tracker -= 1;
            if (hysteresis_tracker <= 0) s = std::max(s * backoff, min);
            return Decision::skip;
        }
        growth_tracker += 1;
        if (growth_tracker == interval) {
            growth_tracker = 0;
            hysteresis_tracker = full;
            s = s * growth;
        }
        return Decision::step;
    }
    [[nodiscard]] double scale() const override { return s; }
    [[nodiscard]] std::int64_t counter() const override { return growth_tracker; }
    [[nodiscard]] std::int64_t hysteresis() const override { return hysteresis_tracker; }
};

struct KerasTwin : Twin {
    float s;
    std::int64_t steps;
    Knobs k;
    explicit KerasTwin(const Knobs& knobs) : s(static_cast<float>(knobs.init)), steps(knobs.clean_steps), k(knobs) {}
    [[nodiscard]] double scale() const override { return s; }
    [[nodiscard]] std::int64_t counter() const override { return steps; }
};

struct Keras3Twin : KerasTwin {
    using KerasTwin::KerasTwin;
    Decision update(bool overflow) override {
        if (overflow) {
            s = s / 2.0F;
            steps = 0;
        } else if (steps == k.interval - 1) {
            s = s * 2.0F;
            steps = 0;
        } else {
            steps += 1;
        }
        return overflow ? Decision::skip : Decision::step;
    }
};

struct Keras2Twin : KerasTwin {
    using KerasTwin::KerasTwin;
    Decision update(bool overflow) override {
        const float multiplier = static_cast<float>(k.growth);
        if (overflow) {
            s = std::max(s / multiplier, static_cast<float>(k.min));
            steps = 0;
        } else if (steps + 1 >= k.interval) {
            if (std::isfinite(s * multiplier)) s *= multiplier;
            steps = 0;
        } else {
            steps += 1;
        }
        return overflow ? Decision::skip : Decision::step;
    }
};

struct JmpTwin : KerasTwin {
    using KerasTwin::KerasTwin;
    Decision update(bool overflow) override {
        const float factor = static_cast<float>(k.growth), floor = static_cast<float>(k.min);
        const float larger = std::isfinite(s * factor) ? s * factor : s;
        const float clean = steps == k.interval - 1 ? larger : s;
        s = overflow ? std::max(floor, s / factor) : clean;
        steps = (steps + 1) % k.interval * (overflow ? 0 : 1);
        return overflow ? Decision::skip : Decision::step;
    }
};

struct ConstantTwin : KerasTwin {
    using KerasTwin::KerasTwin;
    Decision update(bool overflow) override { return overflow ? Decision::skip : Decision::step; }
};

struct NoneTwin : KerasTwin {
    using KerasTwin::KerasTwin;
    Decision update(bool /*overflow*/) override { return Decision::step; }
};

/// The twin of a row of the table; null if the row has none.
inline std::unique_ptr<Twin> twin(std::string_view row, const Knobs& k) {
    if (row == "torch" || row == "torch-sharded") return std::make_unique<TorchTwin>(k);
    if (row == "torch-sharded-cpu") return std::make_unique<ShardedCpuTwin>(k);
    if (row == "apex") return std::make_unique<ApexTwin>(k);
    if (row == "apex-hysteresis") return std::make_unique<ApexHysteresisTwin>(k);
    if (row == "deepspeed" || row == "deepspeed-bare") return std::make_unique<DeepSpeedTwin>(k);
    if (row == "deepspeed-fused") return std::make_unique<DeepSpeedFusedTwin>(k);
    if (row == "megatron") return std::make_unique<MegatronTwin>(k);
    if (row == "keras3") return std::make_unique<Keras3Twin>(k);
    if (row == "keras2") return std::make_unique<Keras2Twin>(k);
    if (row == "jmp") return std::make_unique<JmpTwin>(k);
    if (row == "constant") return std::make_unique<ConstantTwin>(k);
    if (row == "none") return std::make_unique<NoneTwin>(k);
    return nullptr;
}

} // namespace amp::test
