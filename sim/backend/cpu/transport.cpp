#include <ampscope/sim/backend/cpu/detail/transport.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/cpu/detail/wide.h>

#include <vector>

namespace amp::cpu {

using kernels::Transport;

namespace {

/// values = round(change(value)), of an unscaled Transport.
template <class Change>
void round_each(const FormatSpec& format, std::span<float> values, const Change& change) {
    std::vector<double> wide(values.begin(), values.end());
    for (double& x : wide) x = change(x);
    round_wide(format, wide.data(), values.data(), std::ssize(values));
}

} // namespace

void send(const Transport& transport, std::span<float> gradients) {
    if (transport.scaled) {
        for (float& x : gradients) x = transport.send(x);
        return;
    }
    const double divisor = transport.divisor(), factor = transport.factor();
    round_each(transport.format, gradients, [=](double x) { return x / divisor; });
    if (transport.division == AllReduceDivision::nccl_avg)
        round_each(transport.format, gradients, [=](double x) { return x * factor; });
}

void add(const Transport& transport, std::span<float> sums, std::span<const float> received) {
    if (transport.scaled) // saturates
        return apply(Operation::add, transport.format, sums, received, {}, sums, {.policy = transport.policy()});
    std::vector<double> wide(sums.begin(), sums.end());
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] += received[i];
    round_wide(transport.format, wide.data(), sums.data(), std::ssize(sums));
}

void receive(const Transport& transport, std::span<float> sums) {
    if (transport.scaled)
        for (float& x : sums) x = transport.receive(x);
    else if (transport.changes_sums())
        round_each(transport.format, sums, [&](double x) { return x / transport.number; });
}

} // namespace amp::cpu
