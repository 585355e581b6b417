#include <ampscope/sim/base/scale_table.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace amp {

namespace {

/// The tables of MX rules, for each element format.
class Kept {
  public:
    template <class Make>
    std::shared_ptr<const ScaleTable> get(ScaleRule rule, const FormatSpec& element, const Make& make) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<const ScaleTable>& table = tables_[{rule, std::string(element.name)}];
        if (table == nullptr) table = make();
        return table;
    }

  private:
    std::mutex mutex_;
    std::map<std::pair<ScaleRule, std::string>, std::shared_ptr<const ScaleTable>> tables_;
};

} // namespace

std::shared_ptr<const ScaleTable> scale_table(ScaleRule rule, const FormatSpec& element, float tensor_scale,
                                              std::int64_t blocks) {
    static Kept kept;
    const auto make = [&] {
        return std::make_shared<const ScaleTable>(
            [&](float amax) { return block_scale(rule, element, amax, tensor_scale); });
    };
    if (is_mx(rule)) return kept.get(rule, element, make);
    constexpr std::int64_t many = 1 << 14; // more than the table takes to make
    return rule == ScaleRule::nvfp4 && blocks > many ? make() : nullptr;
}

} // namespace amp
