export function draw(svg, data, t, tools) {}
