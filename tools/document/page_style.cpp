#include <ampscope/tools/document/page_parts.h>

namespace amp {

const std::string_view page_style = R"(
:root{color-scheme:light dark;
--ink:#1b1f24;--quiet:#57606a;--paper:#fff;--line:#d8dee4;--band:#f6f8fa;--link:#0060a0;--shade:#0003;
--good:#d5efe4;--fair:#fdeccb;--bad:#f9d5c2;--alarm:#fbd9d9;
--good-edge:#00805c;--fair-edge:#b87d00;--alarm-edge:#b3261e}
@media (prefers-color-scheme:dark){:root{
--ink:#e6edf3;--quiet:#9aa4af;--paper:#0d1117;--line:#30363d;--band:#161b22;--link:#6cb8f0;--shade:#fff4;
--good:#12402f;--fair:#4a3a08;--bad:#5c2608;--alarm:#541717;
--good-edge:#2fc49a;--fair-edge:#e6b800;--alarm-edge:#ff7b72}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 20px 64px;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px}
h2{font-size:1.3rem;margin:44px 0 8px;padding-top:10px;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:28px 0 6px}
p,ul{margin:8px 0;max-width:52rem}
a,summary{color:var(--link)}
summary{cursor:pointer}
sup{line-height:0}
.note,figcaption{color:var(--quiet);font-size:.875rem}
.lead{font-size:1.1rem}
.cards{display:grid;grid-template-columns:repeat(3,1fr);gap:12px;margin:16px 0 20px}
.card{padding:10px 16px 12px;border:1px solid var(--line);border-left:6px solid var(--quiet);border-radius:6px}
.card.good{border-left-color:var(--good-edge)}
.card.fair{border-left-color:var(--fair-edge)}
.card.bad{grid-column:1/-1;background:var(--alarm);border-left-color:var(--alarm-edge);font-weight:400}
.card h2{margin:0;padding:0;border:0;font-size:.875rem;font-weight:400;color:var(--quiet)}
.card p{margin:4px 0 0;font-size:.9375rem}
.card .words{margin:0;font-size:1.5rem;font-weight:700;line-height:1.25}
.words sup{font-size:.65em}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;list-style:none;font-size:.9rem}
.scroll{overflow-x:auto;margin:12px 0;
background:linear-gradient(to right,var(--paper) 40%,transparent) 0 0/40px 100% no-repeat local,
linear-gradient(to left,var(--paper) 40%,transparent) 100% 0/40px 100% no-repeat local,
linear-gradient(to right,var(--shade),transparent) 0 0/14px 100% no-repeat scroll,
linear-gradient(to left,var(--shade),transparent) 100% 0/14px 100% no-repeat scroll}
.wide::before{content:"wider than the page: scroll sideways \2194";display:block;color:var(--quiet);font-size:.8125rem}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{background:var(--band);vertical-align:bottom;white-space:normal;overflow-wrap:normal}
.t{text-align:left}
td.t{max-width:34em;min-width:11em;white-space:normal}
td.good{background:var(--good)}
td.fair{background:var(--fair)}
td.bad{background:var(--bad);font-weight:600}
p.good{background:var(--good)}
p.fair{background:var(--fair)}
p.bad{background:var(--bad);font-weight:600}
th button{all:unset;cursor:pointer}
th button:hover{text-decoration:underline}
th button:focus-visible{outline:2px solid var(--link)}
th[aria-sort=ascending] button::after{content:" \25b2"}
th[aria-sort=descending] button::after{content:" \25bc"}
figure{margin:18px 0}
figcaption{max-width:58rem}
figure svg{display:block;width:100%;min-width:680px;max-width:900px;height:auto}
.axis-switch{font:inherit;font-size:.8125rem;padding:2px 10px;color:var(--link);background:var(--band);
border:1px solid var(--line);border-radius:4px;cursor:pointer}
[data-key][role]{cursor:pointer}
[data-key].off{opacity:.35}
[data-key]:focus{outline:none}
[data-key]:focus-visible{outline:2px solid var(--link)}
.hair{fill:none;stroke:var(--quiet);stroke-width:1;stroke-dasharray:2 2;pointer-events:none}
.tip{position:fixed;z-index:1;max-width:min(26rem,90vw);max-height:70vh;overflow:hidden;padding:4px 10px;
color:var(--ink);background:var(--paper);border:1px solid var(--quiet);border-radius:4px;pointer-events:none;
font-size:.8125rem;line-height:1.4;font-variant-numeric:tabular-nums}
.tip div{padding-left:7px;border-left:4px solid transparent}
.tip .nearest{font-weight:600}
@media (max-width:719px){
.cards{grid-template-columns:1fr}
th,td{padding:4px 6px}
td.t{min-width:8em}
.picture .scroll::before{content:"wider than the page: scroll sideways \2194";display:block;color:var(--quiet);
font-size:.8125rem}
}
@media print{
:root{--ink:#000;--quiet:#333;--paper:#fff;--line:#999;--band:#eee;--good:#fff;--fair:#eee;--bad:#ddd;--alarm:#ddd;
--good-edge:#999;--fair-edge:#555;--alarm-edge:#000}
body{max-width:none;padding:0;font-size:11pt}
nav,.tip,.axis-switch{display:none}
.cards{grid-template-columns:repeat(3,1fr)}
.card{break-inside:avoid}
.scroll{overflow:visible;background:none}
.scroll::before{display:none!important}
table{font-size:7.5pt}
th,td{padding:2px 4px}
td.t{min-width:0}
figure svg{min-width:0}
tr,.picture{break-inside:avoid}
h2,h3{break-after:avoid}
}
)";

} // namespace amp
