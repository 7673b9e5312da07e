const rows = [...document.querySelectorAll('fieldset')], about = document.querySelector('footer').dataset;
const verdict = row => row.querySelector('input:checked')?.value ?? null;
const count = () => {
  document.getElementById('left').textContent = rows.filter(row => !verdict(row)).length + ' left';
};
const form = () => JSON.stringify({
  sample: about.sample, n: Number(about.n), seed: Number(about.seed), rater: document.getElementById('rater').value,
  rollouts: rows.map(row => ({
    number: Number(row.dataset.number), verdict: verdict(row), note: row.querySelector('input[type=text]').value,
  })),
}, null, 1);
document.addEventListener('change', count);
document.getElementById('save').addEventListener('click', () => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([form()], {type: 'application/json'}));
  link.download = 'spotcheck-' + (document.getElementById('rater').value || 'rater') + '.json';
  link.click();
});
count();
