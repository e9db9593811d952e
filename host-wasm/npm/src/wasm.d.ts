/** Edge runtimes import wasm as a module that is compiled on deployment. */
declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}
