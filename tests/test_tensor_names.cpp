// Names of layers in tables and pictures: the shared prefix, shortened names that keep the layer's number, patterns,
// what is invisible in them, and the columns that they take.
#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/base/text.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

using namespace amp;

namespace {

std::string prefix_of(const std::vector<std::string>& names) { return shared_prefix(names); }

} // namespace

TEST_CASE("the prefix that all names share ends before the component that a number belongs to") {
    CHECK(prefix_of({"model.decoder.h.0.attn.weight", "model.decoder.h.11.mlp.weight"}) == "model.decoder.");
    CHECK(prefix_of({"model.decoder.h.3.attn.weight", "model.decoder.h.3.mlp.weight"}) == "model.decoder.");
    CHECK(prefix_of({"model.decoder.wte.weight", "model.decoder.h.3.mlp.weight"}) == "model.decoder.");
    CHECK(prefix_of({"params/encoder/layer_1/kernel", "params/encoder/layer_2/kernel"}) == "params/encoder/");
    CHECK(prefix_of({"encoder.weight.grad", "encoder.weights.grad"}) == "encoder."); // no part of a component
    CHECK(prefix_of({"model.decoder.h.*.attn, weight grad", "model.decoder.h.*.mlp, weight grad"}) == "model.decoder.");
    CHECK(prefix_of({"h.0.attn", "h.1.attn"}).empty());
    CHECK(prefix_of({"net.a", "net.b"}).empty()); // too short for a heading
    CHECK(prefix_of({"model.alone.weight"}).empty());
    CHECK(prefix_of({"model.a.", "model.a.b"}) == "model."); // no name becomes empty
    CHECK(prefix_of({"decoder.a", "encoder.a"}).empty());
    CHECK(prefix_of({}).empty());
}

TEST_CASE("names below a heading") {
    const std::vector<std::string> names = {"model.transformer.h.0.attn", "model.transformer.wte"};
    const NamesBelow below(names);
    CHECK(below.of(names[0]) == "h.0.attn");
    CHECK(below.of(names[1]) == "wte");
    CHECK(below.heading("Worst tensors") == "Worst tensors, below model.transformer.");
    CHECK(NamesBelow(std::vector<std::string>{"a", "b"}).heading("Worst tensors") == "Worst tensors");
}

TEST_CASE("a shortened name keeps the layer's number and its end") {
    const std::string name = "model.transformer.h.11.mlp.c_fc.weight.grad";
    CHECK(shortened_name(name, 80) == name);
    CHECK(shortened_name(name, 30) == "…h.11.mlp.c_fc.weight.grad");
    CHECK(shortened_name(name, 20) == "…h.11.…weight.grad");
    CHECK(shortened_name(name, 14) == "…h.11.…grad");
    CHECK(shortened_name(name, 9) == "…11.…grad");
    CHECK(shortened_name("experts.7.layers.3.a_long_name.w1", 24) == "experts.7.layers.3.…w1");
    CHECK(shortened_name("h.11.mlp.a_projection_of_a_name", 16) == "…11.…a_pro…_name");
    CHECK(shortened_name("fp8-current,accumulate=hopper", 11) == clipped("fp8-current,accumulate=hopper", 11));
    CHECK(shortened_name("h." + std::string(3000, '1') + ".weight", 20) ==
          clipped("h." + std::string(3000, '1') + ".weight", 20));
}

TEST_CASE("a shortened name is never wider than it may be, whatever it is made of") {
    const std::vector<std::string> pieces = {"a", "層", "e\xcc\x81", ".", "/", "7", "12", "weight", "\u2764"};
    std::mt19937 random(5);
    for (int i = 0; i < 20'000; ++i) {
        std::string text;
        for (auto n = random() % 30; n > 0; --n) text += pieces[random() % pieces.size()];
        const std::size_t columns = random() % 24;
        CAPTURE(text);
        CAPTURE(columns);
        const std::string cut = shortened_name(text, columns);
        REQUIRE(width(cut) <= columns);
        REQUIRE(printable(cut) == cut);
    }
}

TEST_CASE("layers that differ only in their number have one pattern") {
    CHECK(name_pattern("h.11.mlp.c_fc1, weight grad", NameNumbers::components) == "h.*.mlp.c_fc1, weight grad");
    CHECK(name_pattern("h.11.mlp.c_fc1", NameNumbers::all) == "h.*.mlp.c_fc*");
    CHECK(name_pattern("layers/3/experts/07/w", NameNumbers::components) == "layers/*/experts/*/w");
    CHECK(name_pattern("block12", NameNumbers::components) == "block12");
    CHECK(name_pattern("block12", NameNumbers::all) == "block*");
    CHECK(name_pattern("", NameNumbers::all).empty());
}

TEST_CASE("what is invisible or turns the direction of a text does not pass") {
    const std::string shown = "\xef\xbf\xbd";
    for (const char* hidden : {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067",
                               "\u2068", "\u2069", "\u200e", "\u200f", "\u061c", "\u200b", "\u200d",
                               "\u00ad", "\u2028", "\u2029", "\u2060", "\ufeff", "\u3164", "\U000e0041"})
        CHECK(printable(std::string("a") + hidden + "b") == "a" + shown + "b");
    for (const char* visible :
         {"\u00a0", "\u00ae", "\u0627\u0644", "\u05d0", "\u2027", "\u2030", "\u2070", "\u2764\ufe0f"})
        CHECK(printable(visible) == visible);
}

TEST_CASE("columns of a terminal: wide characters take two, combining marks none") {
    CHECK(width("") == 0);
    CHECK(width("größe") == 5);
    CHECK(width("層.0.重み") == 9);
    CHECK(width("한국어") == 6);
    CHECK(width("ﾊﾝｶｸ") == 4); // half-width forms
    CHECK(width("ＡＢ") == 4); // full-width forms
    CHECK(width("\xf0\x9f\x98\x80") == 2);
    CHECK(width("e\xcc\x81te\xcc\x81") == 3); // e and U+0301
    CHECK(width("│█▁…×") == 5);               // characters of which tables are drawn
    CHECK(width("\xff\xc3") == 2);
    CHECK(clipped("重み重み重み", 8) == "重…重み"); // 2 of 3 columns and 4 of 4
    CHECK(clipped("abcde\xcc\x81", 3) == "a…e\xcc\x81");
    CHECK(clipped("a\xcc\x81\xcc\x81z\xcc\x81z\xcc\x81z", 3) == "a\xcc\x81\xcc\x81…z");
    std::mt19937 random(3);
    for (int i = 0; i < 20'000; ++i) {
        std::string text;
        for (auto n = random() % 40; n > 0; --n)
            text += std::array{"a", "層", "é", "e\xcc\x81", "\xf0\x9f\x98\x80"}[random() % 5];
        const std::size_t columns = random() % 30;
        CAPTURE(text);
        const std::string cut = clipped(text, columns);
        REQUIRE(width(cut) <= columns);
        REQUIRE(width(cut) + 2 >= std::min(columns, width(text)));
        REQUIRE(printable(cut) == cut);
    }
}
