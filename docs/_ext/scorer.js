// What search puts first: pages and what they say, then Python names, which are long and many.
var Scorer = {
  objNameMatch: 6,
  objPartialMatch: 1,
  objPrio: { 0: 3, 1: 0, 2: -3 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
