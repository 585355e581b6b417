#include <ampscope/sim/io/detail/pickle.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <unordered_map>

namespace amp::pickle {

namespace {

constexpr std::size_t max_name = 1000, max_rank = 64;

class Machine {
  public:
    Machine(std::string_view bytes, const std::function<void(std::size_t, const std::string&)>& fail,
            std::size_t most_values)
        : bytes_(bytes), fail_(fail), most_values_(most_values) {}

    Pickle run() {
        for (;;) {
            opcode_at_ = at_;
            const auto opcode = static_cast<unsigned char>(take(1)[0]);
            if (opcode == '.') {
                built_.root = pop();
                return std::move(built_);
            }
            step(opcode);
            if (std::max({built_.values.size(), memo_.size(), marks_.size()}) > most_values_)
                fail("the pickle holds more than " +
                     (most_values_ == 1'000'000 ? "a million" : std::to_string(most_values_)) + " values");
        }
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        fail_(opcode_at_, what);
        throw std::logic_error("fail returns");
    }

    std::string_view take(std::uint64_t n) {
        if (n > bytes_.size() - at_) fail("the pickle is truncated");
        const std::string_view part = bytes_.substr(at_, n);
        at_ += n;
        return part;
    }
    std::uint64_t number(std::size_t n) { // little-endian
        std::uint64_t value = 0;
        const std::string_view part = take(n);
        for (std::size_t i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(part[i]);
        return value;
    }
    std::string line() {
        const std::size_t end = bytes_.find('\n', at_);
        if (end == std::string_view::npos) fail("the pickle is truncated");
        std::string text(take(end - at_));
        take(1);
        return text;
    }

    template <class T>
    void push(T&& data) {
        built_.values.push_back(Value{std::forward<T>(data)});
        stack_.push_back(&built_.values.back());
    }
    Ref pop() {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() <= floor) fail("the pickle takes a value that is not there");
        const Ref top = stack_.back();
        stack_.pop_back();
        return top;
    }
    Ref top() {
        Ref value = pop();
        stack_.push_back(value);
        return value;
    }
    std::vector<Ref> pop_to_mark() {
        if (marks_.empty()) fail("the pickle takes a mark that is not there");
        const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<Ref> items(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        return items;
    }
    void push_tuple(std::size_t n) {
        std::vector<Ref> items(n);
        for (std::size_t i = n; i-- > 0;) items[i] = pop();
        push(Sequence{std::move(items)});
    }

    template <class T>
    const T& as(const Ref& value, const char* what) const {
        if (const T* data = std::get_if<T>(&value->data)) return *data;
        fail(std::string("expected ") + what);
    }
    /// Names are limited in length, because they are copied at each use.
    const std::string& as_name(const Ref& value, const char* what) const {
        const std::string& name = as<std::string>(value, what);
        if (name.size() > max_name) fail(std::string(what) + " of more than 1000 bytes");
        return name;
    }
    std::uint64_t as_size(const Ref& value) const {
        const std::int64_t n = as<std::int64_t>(value, "an integer");
        if (n < 0) fail("negative number in a tensor's layout");
        return static_cast<std::uint64_t>(n);
    }
    std::vector<std::uint64_t> as_sizes(const Ref& value) const {
        std::vector<std::uint64_t> sizes;
        const std::vector<Ref>& items = as<Sequence>(value, "a tuple").items;
        if (items.size() > max_rank) fail("a tensor of more than 64 dimensions");
        for (const Ref item : items) sizes.push_back(as_size(item));
        return sizes;
    }

    void add_items(const std::vector<Ref>& items) { // key, value, key, value ... into the dict below
        const Ref target = top();
        if (std::holds_alternative<Opaque>(target->data)) return;
        if (items.size() % 2 != 0) fail("a dict entry lacks its value");
        auto* dict = std::get_if<Dict>(&target->data);
        if (dict == nullptr) fail("expected a dict");
        for (std::size_t i = 0; i < items.size(); i += 2) dict->items.emplace_back(items[i], items[i + 1]);
    }
    void append(const std::vector<Ref>& items) {
        const Ref target = top();
        if (std::holds_alternative<Opaque>(target->data)) return;
        auto* list = std::get_if<Sequence>(&target->data);
        if (list == nullptr) fail("expected a list");
        list->items.insert(list->items.end(), items.begin(), items.end());
    }

    void step(unsigned char opcode);
    /// Both do what an opcode of their kind says; for others they return false.
    bool push_scalar(unsigned char opcode);
    bool change_container(unsigned char opcode);
    void push_long();
    void push_double();
    void persistent_id();
    void reduce();
    void build();
    std::variant<Tensor, Opaque> rebuild_tensor(const std::vector<Ref>& args, bool v3) const;

    void memoize(std::uint64_t slot) { memo_[slot] = top(); }
    void recall(std::uint64_t slot) {
        const auto it = memo_.find(slot);
        if (it == memo_.end()) fail("the pickle recalls a value that it did not store");
        stack_.push_back(it->second);
    }

    std::string_view bytes_;
    const std::function<void(std::size_t, const std::string&)>& fail_;
    std::size_t most_values_, at_ = 0, opcode_at_ = 0;
    Pickle built_;
    std::vector<Ref> stack_;
    std::vector<std::size_t> marks_;
    std::unordered_map<std::uint64_t, Ref> memo_;
};

bool Machine::push_scalar(unsigned char opcode) {
    switch (opcode) {
    case 'N': push(None{}); break;
    case 0x88: push(true); break;
    case 0x89: push(false); break;
    case 'J': push(std::int64_t{static_cast<std::int32_t>(number(4))}); break;
    case 'K': push(static_cast<std::int64_t>(number(1))); break;
    case 'M': push(static_cast<std::int64_t>(number(2))); break;
    case 0x8a: push_long(); break;
    case 'G': push_double(); break;
    case 'X':
    case 'T':
    case 'B': push(std::string(take(number(4)))); break;
    case 0x8c:
    case 'U':
    case 'C': push(std::string(take(number(1)))); break;
    case 0x8d: push(std::string(take(number(8)))); break;
    default: return false;
    }
    return true;
}

void Machine::push_long() { // LONG1: little-endian two's complement of 0 to 255 bytes
    const std::size_t n = number(1);
    if (n > 8) {
        take(n);
        return push(Opaque{"a long integer"});
    }
    const std::uint64_t value = number(n);
    const int unused = 64 - 8 * static_cast<int>(n);
    push(n == 0 ? std::int64_t{0} : static_cast<std::int64_t>(value << unused) >> unused);
}

void Machine::push_double() { // BINFLOAT, big-endian
    std::uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    push(std::bit_cast<double>(bits));
}

bool Machine::change_container(unsigned char opcode) {
    switch (opcode) {
    case ')':
    case ']': push(Sequence{}); break;
    case '}': push(Dict{}); break;
    case 0x85: push_tuple(1); break;
    case 0x86: push_tuple(2); break;
    case 0x87: push_tuple(3); break;
    case 't':
    case 'l': push(Sequence{pop_to_mark()}); break;
    case 'a': append({pop()}); break;
    case 'e': append(pop_to_mark()); break;
    case 's': {
        const Ref value = pop(), key = pop();
        add_items({key, value});
        break;
    }
    case 'u': add_items(pop_to_mark()); break;
    default: return false;
    }
    return true;
}

void Machine::step(unsigned char opcode) {
    if (push_scalar(opcode) || change_container(opcode)) return;
    switch (opcode) {
    case 0x80: // PROTO
        if (number(1) > 5) fail("unknown pickle protocol");
        break;
    case 0x95: take(8); break; // FRAME
    case '(': marks_.push_back(stack_.size()); break;
    case '0': pop(); break;
    case '1': pop_to_mark(); break;
    case 'q': memoize(number(1)); break;
    case 'r': memoize(number(4)); break;
    case 0x94: memoize(memo_.size()); break;
    case 'h': recall(number(1)); break;
    case 'j': recall(number(4)); break;
    case 'c': {
        const std::string module = line(), name = line();
        if (module.size() + name.size() > max_name) fail("a name of more than 1000 bytes");
        push(Global{module + "." + name});
        break;
    }
    case 0x93: { // STACK_GLOBAL
        const Ref name = pop(), module = pop();
        push(Global{as_name(module, "a module's name") + "." + as_name(name, "a name")});
        break;
    }
    case 'Q': persistent_id(); break;
    case 'R':
    case 0x81: reduce(); break; // REDUCE, NEWOBJ
    case 'b': build(); break;
    default: fail("opcode " + std::to_string(opcode) + " is not read; save the tensors as safetensors");
    }
}

void Machine::persistent_id() {
    const Ref id = pop();
    const auto& items = as<Sequence>(id, "a storage's id").items;
    if (items.size() < 5 || as<std::string>(items[0], "a storage's id") != "storage") fail("unknown persistent id");
    push(
        Storage{as<Global>(items[1], "a storage class").name, as_name(items[2], "a storage's key"), as_size(items[4])});
}

std::variant<Tensor, Opaque> Machine::rebuild_tensor(const std::vector<Ref>& args, bool v3) const {
    if (args.size() < (v3 ? 7u : 4u)) fail("a tensor lacks arguments");
    const std::size_t metadata_at = v3 ? 7 : 6; // {"conj": True}, {"neg": True}: applied when the tensor is used
    const auto* metadata = args.size() > metadata_at ? std::get_if<Dict>(&args[metadata_at]->data) : nullptr;
    if (metadata != nullptr && !metadata->items.empty()) return Opaque{std::string(pending)};
    Tensor tensor{as<Storage>(args[0], "a storage"), as_size(args[1]), as_sizes(args[2]), as_sizes(args[3]), {}};
    if (tensor.shape.size() != tensor.stride.size()) fail("a tensor's shape and stride differ in length");
    if (v3) tensor.dtype = as<Global>(args[6], "a dtype").name;
    return tensor;
}

void Machine::reduce() {
    const Ref args_ref = pop(), callable = pop();
    const auto& args = as<Sequence>(args_ref, "a tuple of arguments").items;
    if (const auto* opaque = std::get_if<Opaque>(&callable->data)) return push(Opaque{opaque->name});
    const std::string& name = as<Global>(callable, "a function").name;
    const bool v3 = name == "torch._utils._rebuild_tensor_v3";
    if (v3 || name == "torch._utils._rebuild_tensor_v2")
        return std::visit([this](auto&& tensor) { push(std::move(tensor)); }, rebuild_tensor(args, v3));
    const bool parameter =
        name == "torch._utils._rebuild_parameter" || name == "torch._utils._rebuild_parameter_with_state";
    if (parameter && !args.empty()) return stack_.push_back(args[0]);
    if (name == "collections.OrderedDict" && args.empty()) return push(Dict{});
    if (name == "torch.Size" && args.size() == 1) return stack_.push_back(args[0]);
    if ((name == "__builtin__.getattr" || name == "builtins.getattr") && args.size() == 2)
        if (const auto* owner = std::get_if<Global>(&args[0]->data)) { // a method, named in two steps
            const std::string method = owner->name + "." + as_name(args[1], "a name");
            if (method.size() > max_name) fail("a name of more than 1000 bytes");
            return push(Global{method});
        }
    push(Opaque{.name = name, .args = args_ref});
}

/// BUILD sets the state of an object, which stays opaque, or attributes of a dict, which are left out.
void Machine::build() {
    const Ref state = pop();
    if (auto* opaque = std::get_if<Opaque>(&top()->data)) opaque->state = state;
}

} // namespace

Pickle load(std::string_view bytes, const std::function<void(std::size_t, const std::string&)>& fail,
            std::size_t most_values) {
    return Machine(bytes, fail, most_values).run();
}

} // namespace amp::pickle
