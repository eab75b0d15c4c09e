export default function () {
  document.addEventListener("click", follow, true); // the same function: once, however often this is called
  return () => document.removeEventListener("click", follow, true);
}
