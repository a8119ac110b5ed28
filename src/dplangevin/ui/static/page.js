// The page works without this script; it moves the slider, renews the plan and the progress, and fills in answers.
"use strict";
document.documentElement.classList.add("scripts");

function fillOpenColumns(kind) {
  for (const column of document.querySelectorAll("fieldset.column")) {
    if (!column.querySelector("input[type=radio]:checked")) {
      column.querySelector(`input[type=radio][value=${kind}]`).checked = true;
    }
  }
}

for (const button of document.querySelectorAll("[data-fill]")) {
  button.addEventListener("click", () => fillOpenColumns(button.dataset.fill));
}

// A second click on a form that is on its way would send it twice; the server makes only one release anyway.
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "yes";
    setTimeout(() => { delete form.dataset.sent; }, 4000);
  });
}
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form")) {
    delete form.dataset.sent;
  }
});

function watchBudget(form) {
  const slider = document.getElementById("slider");
  const epsilon = document.getElementById("epsilon");
  const delta = document.getElementById("delta");
  const dataset = document.getElementById("dataset");
  const shown = document.getElementById("shown");
  const plan = document.getElementById("plan");
  let timer = null;
  let request = 0;

  function placeSlider() {
    const value = Number(epsilon.value);
    if (value > 0) {
      slider.value = String(Math.log10(value));
      slider.setAttribute("aria-valuetext", `epsilon ${epsilon.value}`);
      shown.textContent = epsilon.value;
    }
  }

  async function renewPlan() {
    const number = ++request;
    plan.setAttribute("aria-busy", "true");
    const query = new URLSearchParams({ epsilon: epsilon.value, delta: delta.value });
    if (dataset) {
      query.set("dataset", dataset.value);
    }
    try {
      const answer = await fetch(`${form.dataset.plan}?${query}`, { credentials: "same-origin" });
      const text = await answer.text();
      if (number !== request) {
        return;
      }
      const parsed = new DOMParser().parseFromString(text, "text/html");
      const failed = !answer.ok && parsed.querySelector(".error");
      plan.replaceChildren(...(failed ? [failed] : parsed.body.childNodes));
    } catch {
      plan.textContent = "The page does not answer; is it still running in the terminal?";
    } finally {
      plan.setAttribute("aria-busy", "false");
    }
  }

  function renewSoon() {
    clearTimeout(timer);
    timer = setTimeout(renewPlan, 120);
  }

  slider.addEventListener("input", () => {
    epsilon.value = String(Number((10 ** Number(slider.value)).toPrecision(2)));
    placeSlider();
    renewSoon();
  });
  epsilon.addEventListener("input", () => { placeSlider(); renewSoon(); });
  delta.addEventListener("input", renewSoon);
  if (dataset) {
    dataset.addEventListener("change", renewSoon);
  }
  placeSlider();
}

const budgetForm = document.getElementById("budget-form");
if (budgetForm) {
  watchBudget(budgetForm);
}

const progress = document.getElementById("progress");
if (progress) {
  const start = Date.now();
  const text = document.getElementById("progress-text");
  const look = async () => {
    try {
      const answer = await fetch(progress.dataset.state, { credentials: "same-origin" });
      const state = await answer.json();
      if (state.state !== "running") {
        location.reload();
        return;
      }
      const seconds = Math.round((Date.now() - start) / 1000);
      text.textContent = `${state.progress || "Reading the table and fitting"} … ${seconds} s`;
    } catch {
      text.textContent = "The page does not answer; the release goes on. Start the page again to see it.";
    }
    setTimeout(look, 1000);
  };
  setTimeout(look, 700);
}

const error = document.getElementById("error");
if (error) {
  error.focus();
}
