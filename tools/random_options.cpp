#include <ampscope/tools/random_options.h>

#include <stdexcept>

namespace amp {

void RandomOptions::add_to(CLI::App& app) {
    app.add_option("--random-bits", bits, "Bits of the random words of stochastic rounding, 1 to 32")
        ->transform(whole_number(1, 32))
        ->capture_default_str();
    app.add_option("--stochastic-variant", variant,
                   "How stochastic rounding cuts what it discards to these bits: down, to nearest with ties up or with "
                   "ties to even (IEEE P3109's A, B, C)")
        ->check(one_of(stochastic_variant_names))
        ->capture_default_str();
}

void RandomOptions::apply_to(Policy& policy, const CLI::App& app) const {
    for (const char* option : {"--random-bits", "--stochastic-variant"})
        if (policy.rounding != Rounding::stochastic && app.count(option) > 0)
            throw std::invalid_argument(std::string(option) + " changes nothing: it is for --rounding stochastic");
    policy.random_bits = static_cast<std::uint8_t>(bits);
    policy.variant = parse_name<StochasticVariant>("variant", stochastic_variant_names, variant);
}

} // namespace amp
