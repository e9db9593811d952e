// Colours as people see them: contrast, and how far apart two stay for the three kinds of colour blindness.

const linear = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
const clamp = (channel) => Math.min(1, Math.max(0, channel));
const times = (matrix, vector) => matrix.map((row) => clamp(row[0] * vector[0] + row[1] * vector[1] + row[2] * vector[2]));

/** What somebody with full protanopia, deuteranopia or tritanopia sees: Machado, Oliveira and Fernandes (2009), table 1. */
const SIGHTS = [
  [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
];

/** The linear channels of a colour in bytes of red, green and blue. */
export const channelsOf = (bytes) => bytes.map((byte) => linear(byte / 255));

/** The linear channels of `#rgb`, `#rrggbb`, `rgb(...)` or `color(srgb ...)`. */
export function channels(css) {
  const long = css.replace(/^#([0-9a-f])([0-9a-f])([0-9a-f])$/i, "#$1$1$2$2$3$3");
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(long);
  const bytes = hex ? hex.slice(1).map((pair) => Number.parseInt(pair, 16)) : css.match(/[\d.]+/g).slice(0, 3).map(Number);
  if (css.startsWith("color(srgb")) return bytes.map(linear);
  return channelsOf(bytes);
}

const luminance = ([red, green, blue]) => 0.2126 * red + 0.7152 * green + 0.0722 * blue;

/** The contrast of two colours, 1 to 21 (WCAG 2). */
export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** A colour in OKLab, where distances are about as large as they look. */
function perceived([red, green, blue]) {
  const long = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const medium = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const short = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return [
    0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short,
    1.9779984951 * long - 2.428592205 * medium + 0.4505937099 * short,
    0.0259040371 * long + 0.7827717662 * medium - 0.808675766 * short,
  ];
}

/** The distance of two colours for whoever sees the least of it. */
export function distance(one, other) {
  const apart = SIGHTS.map((sight) => {
    const [a, b] = [one, other].map((colour) => perceived(times(sight, colour)));
    return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  });
  return Math.min(...apart);
}
