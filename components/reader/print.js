export default function ({ data, parentElement: root }) {
  let button = root.querySelector("button");
  if (!button) { button = document.createElement("button"); button.type = "button"; root.append(button); }
  button.textContent = data.words.print;
  button.onclick = () => window.print();
}
