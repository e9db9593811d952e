// Colours that are to be seen on a canvas.

/** How many pixels of a canvas are painted in the colour of a custom property, within a small distance. */
export function painted(canvas, property) {
  return canvas.evaluate((canvas, property) => {
    // A copy, so that reading it does not take the chart's own canvas off the fast path.
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
    copy.fillRect(0, 0, 1, 1);
    const [red, green, blue] = copy.getImageData(0, 0, 1, 1).data;
    copy.clearRect(0, 0, 1, 1);
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
      const distance = Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue);
      if (data[at + 3] > 200 && distance < 24) count += 1;
    }
    return count;
  }, property);
}
