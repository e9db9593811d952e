/** How edge runtimes import wasm: compiled when the worker is deployed. */
declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}
