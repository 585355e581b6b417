// What a JSON report of amp-histogram says of recipes.
#pragma once

#include <ampscope/sim/findings/histogram_recipe.h>

#include <nlohmann/json.hpp>

namespace amp::detail {

nlohmann::ordered_json effect_json(const RecipeEffect& effect, const RecipeChoice& choice);

/// What effect_json() wrote, without RecipeEffect::blocks. Throws for anything else.
RecipeEffect parse_effect(const nlohmann::ordered_json& json);

} // namespace amp::detail
