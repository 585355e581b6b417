#include "needs.h"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
    const int code = doctest::Context(argc, argv).run();
    return code == 0 && amp::test::skipped_something ? amp::test::skipped_code : code;
}
