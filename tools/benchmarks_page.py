"""Writes docs/benchmarks.md from the committed rows: what was measured, the tables, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from autolrs.bench.methods.ours import ABLATIONS
from autolrs.bench.runner import read_rows
from autolrs.bench.score import Row, score
from autolrs.bench.tables import FORMATS, TABLES, headline
from autolrs.bench.tasks.deep import DEEP
from autolrs.bench.tasks.finetune import FINETUNE
from autolrs.bench.tasks.kinds import KINDS
from autolrs.bench.tasks.ordinary import ORDINARY
from autolrs.bench.tasks.priors import PRIORS
from autolrs.bench.tasks.sgd import SGD_TASKS
from autolrs.bench.tasks.short import SHORT

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"

HEADLINE_TASKS = (
    *("fashion-mlp", "fashion-cnn", "bible-transformer", "bible-lstm", "fashion-autoencoder", "digits-mlp"),
    *("transformer-wmt14", "bert-pretraining"),
    *("shakespeare-gru", "digits-cnn", "resnet50-imagenet", "fashion-vit"),  # held out
    *("vgg16-cifar10", "resnet50-cifar10", "vgg16-cifar100"),
)
DEEP_TASKS = tuple(task.name for task in DEEP)
FINETUNE_TASKS = tuple(task.name for task in FINETUNE)
BY_SGD = tuple(task.name for task in SGD_TASKS)
KIND_TASKS = tuple(task.name for task in KINDS)
ORDINARY_TASKS = tuple(task.name for task in ORDINARY)
PRIOR_TASKS = tuple(task.name for task in PRIORS)
SHORT_TASKS = tuple(task.name for task in SHORT)
TABLE_TASKS = ("digits-logistic", "cancer-mlp", "diabetes-mlp", "friedman-mlp")  # held out
HEADLINE_METHODS = (
    *("horizon", "horizon-plain", "paper", "cosine", "linear", "onecycle", "wsd", "constant"),
    *("schedule-free", "schedule-free-default", "prodigy", "hand-tuned"),
)

HEAD = """# Benchmarks

Made by `python tools/benchmarks_page.py` from the rows in `benchmarks/results/`, which `autolrs bench run` writes.
Tasks are real and small (two cores, seconds a run; `src/autolrs/bench/tasks/`). Losses are test losses.

- **Rivals** have their peak LR tuned on another seed: six LRs a factor 2 apart, extended while the best is at an edge.
  The cost of that tuning is *not* counted in their cost; the column **tuning** says how many runs it took.
- **horizon** is `AutoLRS(model, optimizer, total_steps=T, evaluate=...)` and nothing else: seven decades of LR, no
  tuning; search and validation passes are counted. **horizon-plain** has `averaging=False`: the schedule alone.
- **A validation pass counts** as a third of a step for each batch that it looks at, on each task as horizon weighed it
  there: .3 steps on digits-cnn, 27 on resnet50-cifar10. At first every one was counted as 10 / 3 steps, in the
  strategy and here: rows from then (`retired/horizon-ten-passes.jsonl`, `retired/horizon-plain-short-warm-up.jsonl`)
  cost up to 1.5 in truth ([research log](research-log.md#what-an-evaluate-costs)).
- **paper** is Algorithm 1 as printed, on a three-decade interval around the good LRs, with stages of 1/40 to 1/5 of the
  run.
- **vs best tuned** is the ratio to the best of the tuned schedules on that task (cosine, linear, OneCycle and, where
  they were run, WSD and constant). **speedup** is total steps over steps to the tuned cosine's mean final loss, search
  not counted; **all counted** includes search and validation passes.
- **shakespeare-gru, digits-cnn, resnet50-imagenet and fashion-vit are held out**: no number was chosen on them.
  vgg16-cifar10 was until its searches, and eight whole runs of it on other seeds, showed what to do about its spread
  ([research log](research-log.md#what-is-left-of-the-spread)); it had 1.009 before. fashion-vit, on which a first
  form of the search had failed, was looked at once, after all was fixed. The first two were in sight when the form of
  the rule was judged, vgg16-cifar10 showed a fault of the search, which was mended, and the first four had been seen
  to want a higher peak than they got before the correction was made to depend on the task; what it depends on was
  found on other tasks and seeds ([research log](research-log.md#a-correction-for-each-task)). A search of
  resnet50-imagenet that ended on a slope was seen before searches went up two octaves at a time. transformer-wmt14
  and bert-pretraining became development tasks when they failed. **resnet50-cifar10** and **vgg16-cifar100**, the
  last ones added, are **not held out**. The first failed when it was first run (one network learned nothing), and the
  rule that mended it was given its last form with searches of this task in sight; by its first form the ratio was
  1.037 instead of 1.004 ([research log](research-log.md#where-miniature-runs-learn-nothing)). The second had 1.129
  when it was first run; a rule that no other search of the headline meets was made with it in sight ([research
  log](research-log.md#two-bottoms)) and helped one seed of five; it came to 1.073.
- The paper's models are narrow members of the same code here: VGG-16 and ResNet-50 at an eighth of their width (a
  sixteenth for ResNet-50 on CIFAR-10, with a block a stage) on CIFAR-10 (vgg16-cifar100 too, whose hundred outputs then
  have ten classes) and Fashion-MNIST, a Transformer of width 64 on
  message catalogues, BERT of width 48 on the King James Bible. About a minute a run.
- **Seeds**: five; **horizon** and the best tuned schedules have 20 on the GRU, digits-mlp and where a run takes half a
  minute or more, 40 on the other development tasks and 199 on digits-cnn, where five say little about the spread; some
  rivals have three or ten. Rows of **horizon** from before its last change ([research
  log](research-log.md#averages-deep-descents-other-images)) are in `retired/horizon-lower-loss.jsonl`, from before the
  one before it ([research log](research-log.md#what-is-left-of-the-spread)) in `retired/horizon-sharper-mean.jsonl`,
  from before its warm-up was made to depend on the task in `retired/horizon-short-warm-up.jsonl`. For these changes
  the tasks that are not held out were in sight, with runs on other seeds; the held-out ones were run once for each.
  Since [ordinary jobs](research-log.md#ordinary-jobs) taught SGD what to do on a plateau, resnet50-imagenet and two
  other runs whose peak moved have been run again (before: `retired/horizon-before-plateaus.jsonl`; one of fashion-vit,
  by 1 %, has not); 461 runs with a [sharper average](research-log.md#a-sharper-average) say that the other peaks are
  what they were.
- Since SGD has a [slow ramp](research-log.md#the-slow-ramp), the LSTM and digits-mlp have been run again
  (before: `retired/horizon-before-slow-ramp.jsonl`); the other tasks with SGD have norms, and are searched as before.
- Since [deep falls](research-log.md#deep-falls) have a rule of their own, the autoencoder, digits-mlp and digits-cnn
  have been run again (before: `retired/horizon-before-deep-falls.jsonl`: .981, .951 and 1.043); on the other tasks
  miniature runs do not fall so deep.
- Since the search with Adam and its like begins at what is [usual](research-log.md#what-is-usual-in-longer-runs), all
  tasks with such an optimizer have been run again (before: `retired/horizon-search-alone.jsonl`). The rule was made on
  other tasks and six of these, none of them held out; what convolutions count for was changed after digits-cnn had
  been seen to lose 3 % by the first form.
- Since SGD in networks with norms has an LR that is [usual](research-log.md#what-is-usual-of-sgd), vgg16-cifar10 and
  resnet50-cifar10 have been run again, with 20 seeds instead of ten (before: `retired/horizon-before-usual-sgd.jsonl`).
  All other searches were, too, on the first ten seeds, and end as they did, but for one of finetune-transformer and
  nine of **horizon-plain**, five of them of friedman-mlp, which have been run again.
- Since SGD takes what is usual where it did best far below it ([research
  log](research-log.md#what-a-constant-answer-leaves)), one run of vgg16-cifar10 (seed 8) has been run again (before:
  `retired/horizon-before-rare-answers.jsonl`). All searches by SGD in networks with norms were, and no other moved.
- All rows were run from clean commits, which they name, but for what `retired/` keeps: older defaults, and rivals run
  from working copies, which came out the same when run again. Rows of
  one method may name several commits: what changed between them does not concern it. The searches of **horizon** can
  be run again (`python tools/peaks.py again`); on another machine, which rounds otherwise, some peaks differ, those of
  vgg16-cifar100 much. transformer-wmt14 has new data, the same on every machine, and all its rows are new; the old ones
  are in `retired/translation-machine-catalogues.jsonl`.
- Seconds in the rows are of a shared, busy machine and compare nothing; costs are counted in steps.

After the headline come the tables of the AutoLRS paper, at the same small scale, with the paper's own numbers.

## Headline

"""

TAIL = """
### In words

- **horizon**, with nothing tuned, is below the best tuned schedule on eleven of the fifteen tasks by 1.6 to 7 %, level
  with it (within 1 %) on the GRU and resnet50-imagenet, and above it on vgg16-cifar100 by 1 % and on digits-cnn by 2 %
  (199 seeds, standard error 2 %).
- The mean over all is .978: the aim of 1.00 is **met**; tuned WSD, linear and cosine have 1.02 to 1.03, each with 6 to
  12 runs of tuning a task. The worst task is digits-cnn, with 1.024: the aim of 1.03 is **met**. The cost is 1.11 to
  1.15 with every validation pass at its weight: **met**; in five runs of 199 on digits-cnn training broke, and what was
  tried again made it 1.15 to 1.23. It does worse in [short runs](#short-runs), in [fine-tuning](#fine-tuning) and
  on [tables of numbers](#tables-of-numbers).
- **What is usual** ([how](horizon.md#what-is-usual)): before the search with Adam and its like began there, the mean
  was .982, the worst task 1.046 (digits-cnn), the spread 1.08 (`retired/horizon-search-alone.jsonl`). The GRU has .992
  (1.001), fashion-vit .933 (.940), the MLP .968 (.977), the Transformer .968 (.974), BERT .981 (.984); the first two
  are held out. Seeds differ less on the MLP (1.2 times the best tuned schedule's instead of 1.9), the GRU (1.1, 1.5),
  the Transformer (1.2, 1.4) and the small transformer (1.0, 1.2), and more on BERT (1.0, .35).
- **digits-cnn** had 1.043 and 1.046 before that, and 1.012 and 1.027 with sixty seeds and earlier forms of the rule; on
  these sixty seeds the loss of before was 2.0 % (standard error 2.3) and .6 % (1.4) above those two, which was chance
  mostly. Of the tuned schedules the cosine alone is ahead of it: linear is 6 % above that cosine, WSD 19 %. All are
  tested on the same 456 images, of which six are mistaken; on its validation images horizon is 4 % below that cosine
  (standard error 1.5). On twenty other splits it was 1.9 % above it (standard error 1.4), when it had 1.043 here
  ([research log](research-log.md#averages-deep-descents-other-images)).
- **digits-mlp** had .991 before SGD that comes far in miniature runs was given a higher peak, and .946 now; tables of
  numbers with SGD, on which nothing was chosen, gain .5 and .9 % by it.
- **vgg16-cifar100**: its miniature runs learn which ten of the hundred outputs occur and no more, and what a whole run
  wants cannot be seen before a fifth of it ([research log](research-log.md#two-bottoms)). Peaks are up to four times
  too high, which a longer warm-up forgives.
- **vgg16-cifar10** and **resnet50-cifar10**, whose miniature runs learn next to nothing, take what is
  [usual](horizon.md#what-is-usual) of SGD: 3 and 2 % below the best schedule with spreads of .9 and .9. By the edge
  of divergence they had .967 and .994, and 1.4 (ten seeds; two rows of the former were of an older rule).
- It reaches the tuned cosine's loss in 1.1 to 1.6x fewer steps on fourteen tasks (3.7x on digits-mlp, which overfits
  from there on), 1.5x in the mean of the fifteen, search not counted: the aim of 1.2x is **met** in the mean, and
  missed on resnet50-imagenet (1.12) and vgg16-cifar100 (1.16). With everything counted it is 4 % later on the first,
  level on the second and ahead on all others.
- **The spread over seeds** is 1.01 times that of the best tuned schedule in the geometric mean (column **spread
  ratio**), where tuned WSD has 1.07, linear .95 and cosine .90. The aim of 1.00 is **missed** by a hundredth, and by
  the number of seeds the figure is known to .05. **It is not a blind one**: a first form of SGD's usual LR was run on
  the same 20 seeds of vgg16-cifar10 and resnet50-cifar10, had 1.04, and was changed afterwards ([research
  log](research-log.md#what-is-usual-of-sgd); `retired/horizon-half-way-to-usual-sgd.jsonl`). With ten seeds on slow
  tasks, and before SGD had a usual LR, it was 1.07. It is no wider (within 6 %) on ten tasks, up to 1.3 times on the
  GRU, the Transformer, MLP and CNN, and 1.7 times on vgg16-cifar100. There the peaks make it; elsewhere they do not
  (with one peak a task for all seeds .98 would be left).
- **Averaging**, with the hold that goes with it, is worth 4 % in the mean (nothing on digits-cnn, 1 % on the GRU and
  vgg16-cifar100, 2 to 4 % on seven tasks, 6 % on fashion-vit, vgg16-cifar10 and resnet50-cifar10, 8 and 9 % on the
  Transformer and digits-mlp).
- **horizon-plain**, the schedule alone, has a mean of 1.017, less than tuned linear, and a spread of .81, narrower
  than the best tuned schedule's. Before its warm-up went by what miniature runs learned, and validation was weighed, it
  had 1.046, 1.41 and up to 1.48 times the cost (`retired/horizon-plain-short-warm-up.jsonl`).
- **Tuned Schedule-Free** is 1 to 2 % ahead of horizon on vgg16-cifar100 and fashion-vit, level (within 1 %) on the MLP,
  the GRU, the LSTM, the transformer, vgg16-cifar10 and both ResNet-50s, 1 % behind on the CNN, 3 % on digits-mlp, 6 %
  on BERT, 7 % on the Transformer, 9 % on the autoencoder and 38 % on digits-cnn; it had 6 to 13 runs of tuning. At its
  default LR it is far behind, but for the convolution net, where it is the best of all.
- **Tuned WSD** is the best schedule on transformer, autoencoder, digits-mlp, Transformer (9 % below linear),
  BERT, GRU, VGG-16 and ResNet-50 on CIFAR-10 and vgg16-cifar100, and fails on digits-cnn. A tuned constant LR is 2 to
  30 % behind. **Prodigy**, which needs no tuning either, is the best here on digits-mlp, 6 to 19 % behind on ten tasks,
  24 and 35 % on BERT and vgg16-cifar100, has almost three times the loss on the Transformer, and two of its three
  networks on digits-cnn die.
- **Hand-tuned** schedules of the original papers, made for full size, are 10 to 61 % behind on the narrow models, and
  have twice the loss on the Transformer.
- **Algorithm 1 as printed** is 5 to 28 % behind on GRU, digits-mlp, resnet50-cifar10, BERT, LSTM and the Transformer,
  39 to 54 % on the small transformer and both VGG-16s, has twice the loss on resnet50-imagenet, and fails on the
  others: short probes forecast below zero, LRs near the top of the interval win, and networks die. The paper's own
  stages have ten to a hundred times the steps.
"""


END = """## What was not measured

- **The paper's own models at full size**: never run whole, here or elsewhere. So nothing here says whether the paper's
  numbers come out at its scale.
- **Fewer seeds** than five for most rivals added later; two tasks at most for the paper's tables.
- **Raw rows**: `benchmarks/results/`; each table again: `autolrs bench table benchmarks/results/*.jsonl --name NAME`,
  and `autolrs bench table benchmarks/results/series/*.jsonl --name forecasters`.
"""


class Section(NamedTuple):
    """A heading, a table of `autolrs bench table` by name from the rows that `of` picks, and what it says."""

    heading: str
    table: str
    of: Callable[[Row], bool]
    words: str
    summed: bool = False  # whether the table over all tasks is shown too


def ablated(row: Row) -> bool:
    return row["task"] in ("digits-mlp", "fashion-mlp") and row["method"] in ("paper", *ABLATIONS)


SECTIONS = (
    Section(
        "Ordinary jobs",
        "headline",
        lambda row: row["task"] in ORDINARY_TASKS,
        """
Small networks on CIFAR-10 at 16x16 for one to three epochs. The first five had a say in what SGD does [on a
plateau](research-log.md#ordinary-jobs) (groupnorm-sgd was written as held out, and looked at when it failed); tanh-sgd,
batchnorm-adamw and mlp-adam are held out. Rivals are up to three schedules, tuned as above, on three seeds;
residual-sgd and groupnorm-sgd have none yet. Not in the mean above. Two runs of groupnorm-sgd took what is
[usual](horizon.md#what-is-usual) and ended 2 and 3 % lower than by the edge of divergence.

- **horizon** is .6 % below the best tuned schedule in the mean of the six that have one, and 2.3 % above it on the
  worst, tanh-sgd. Before that, plain-sgd ended at 1.1 to 1.9 by peaks up to ten times too high, batchnorm-sgd at 1.0.
- **plain-sgd** is 3.3 % below the tuned linear decay. Since the [slow ramp](#small-networks-by-sgd) has a say, mlp-sgd
  has 1.2 % above it instead of .3 % below (before: `retired/horizon-before-slow-ramp.jsonl`). Since the search with
  Adam begins at what is [usual](horizon.md#what-is-usual), mlp-adam has .985 (.990) and batchnorm-adamw .989 (1.000),
  and seeds of the first differ half as much.
""",
        summed=True,
    ),
    Section(
        "Deep networks by SGD",
        "headline",
        lambda row: row["task"] in DEEP_TASKS,
        """
Deep networks with norms on CIFAR-10 at 16x16, of which miniature runs learn little or nothing
(`src/autolrs/bench/tasks/deep.py`). All but vgg-groupnorm are **held out** and were run once; six more tasks, on which
it was looked at what is [usual](research-log.md#what-is-usual-of-sgd) of SGD, have no tuned rivals yet. The rival is a
linear decay, tuned as above, on three seeds. Not in the mean above. In the commit that their
rows name, preact-plain and deeper-groupnorm have longer names.

- **horizon** is 2 % below the tuned linear decay in the mean, below it on five tasks, and **10 % above it on
  separable**: two of its networks took what is usual, .03, where .25 is right.
- **Before SGD had a usual LR** the same seeds of separable ended 3 % lower, those of deeper-groupnorm 19 % higher,
  those of post-norm and deep-perceptron as they do now (`peaks/usual-sgd-before.jsonl`).
""",
        summed=True,
    ),
    Section(
        "Rare answers",
        "headline",
        lambda row: row["task"] in PRIOR_TASKS,
        """
Networks with norms by SGD whose first steps learn how often each answer comes, and little else: rare classes, outputs
that never occur, a background (`src/autolrs/bench/tasks/priors.py`). **Held out** are ink, rare-residual, rare-deep and
hundred-deeper; on the others it was chosen what is done [there](research-log.md#what-a-constant-answer-leaves), on
other seeds. The rival is a linear decay, tuned as above, on three seeds. Not in the mean above. In the commit that
their rows name, tasks have `-sgd` behind their names.

- **horizon** is 3 % below the tuned linear decay in the mean, below it on seven tasks of eight by 1 to 7 %, and **9 %
  above it on hundred-deeper**, a deep VGG with a momentum of .95, whose miniature runs bring a hundred outputs down to
  the ten that occur at any LR: it gets peaks of .05 to 1.1, where .008 is right.
- Of the four held out it is 2 % below it in the mean. On one seed each of rare-batchnorm, rare-groupnorm,
  rare-residual and rare-transformer miniature runs had the say: peaks of .003 to .006 there, and 8 to 17 % more loss
  than on the other seeds on three of them.
""",
        summed=True,
    ),
    Section(
        "Small networks by SGD",
        "headline",
        lambda row: row["task"] in BY_SGD,
        """
The first networks that come to mind, by SGD, for 300 to 2500 steps (`src/autolrs/bench/tasks/sgd.py`). The first
nineteen had a say in the [slow ramp](horizon.md#sgd) ([research log](research-log.md#the-slow-ramp)); the last eight
(from iris on) were written after its first form, and run with it and once more: **their results were in sight** when
it was given its last form, because networks of **deep** and parity had stayed at chance on these seeds. By the first
form the nineteen had 36 % and the eight 86 % (`retired/horizon-sgd-first-slow-ramp.jsonl`). Rivals are three schedules,
tuned as above. Not in the mean above. Means are geometric, with a ratio above 10 taken for 10 and
one below .1 for .1: losses that end near 0 differ by orders of magnitude.

- **horizon misses its aim**: it is 9 % above the best tuned schedule on the first nineteen (tuned linear is 12 % above
  it on all), 22 % on all 27 and 58 % on the eight: that is **deep**, where one network of five stays near chance, and
  **sums-long**, which it trains with a fifth of the right LR to five times the loss; on the other six it is 7 %.
- **Before [deep falls](research-log.md#deep-falls)**, when miniature runs of SGD were drawn a third of the way up to
  what the slow ramp tells whatever they had learned, it was 12, 27 and 71 %; sums-long, which was looked at for it, had
  180 times the loss, autoencoder-long and taught-long a third more (`retired/horizon-before-deep-falls.jsonl`).
- **Before the slow ramp** it was 64 % above it on the nineteen, 72 % on all and 93 % on the eight, and of 135 runs 18
  ended above four times the best schedule's loss, now 5 (three of them of sums-long)
  (`retired/horizon-sgd-before-slow-ramp.jsonl`, from a working copy: the code of before and these tasks).
- **Where it is lost**: on gru, spirals-long and taught-long by peaks of a half to a third of what is right, on blobs,
  which overfits, by ones three times too high, on digits-long by one of five (six times the loss). gru had 5 % before.
- On short tasks of before ([short runs](#short-runs)) it changes little in the mean, and in longer runs of SGD of the
  headline next to nothing: LSTM .981 (.980), digits-mlp .946 (.946); logistic regression 1.21 (1.17).
""",
        summed=True,
    ),
    Section(
        "Jobs of many kinds",
        "headline",
        lambda row: row["task"] in KIND_TASKS,
        """
Things that people train beside classifiers, and regressions whose targets nobody has centred, for 1000 to 3000 steps
(`src/autolrs/bench/tasks/kinds.py`). Fourteen had a say in what is done after [deep falls](research-log.md#deep-falls):
the first six, and eight of `uncentred-`. **Twelve are held out**: kind-equation to kind-rmsprop, ink-sgd and friedman2;
ink and counts were until a first form of the rule failed on them. Rivals are three schedules, tuned as above. Not in
the mean above. Means are geometric, with a ratio above 10 taken for 10 and one below .1 for .1.

- **horizon** is 19 % below the best tuned schedule in the mean of all 26, 21 % below it on the twelve held out and 16 %
  on the fourteen: 17, 19 and 16 % before [what is usual](research-log.md#what-is-usual-in-longer-runs) had a say in
  longer runs (`retired/horizon-search-alone.jsonl`). Peaks of contrast were .06 to 1.9 then, and are .0065.
  convolutions-back and ink were run with the first form of that, too (.79 and 1.18, now .70 and .98), before
  convolutions were counted as they are. Since the size of its [first steps](horizon.md#first-steps) is known, rmsprop
  has .93 instead of 1.00 (`retired/horizon-before-first-steps.jsonl`). Tuned schedules are uneven here: WSD is 17 %
  above the best of them, linear 19 and cosine 23 %; the last two lose a network on curve-sgd.
- **Before deep falls** it was 19 % above it on all, 10 % below it on the twelve and 50 % above it on the fourteen: 27
  times the loss on waves, twenty times on sums (`retired/horizon-kinds-before-deep-falls.jsonl`, from a working copy:
  the code of before and these tasks). By the first form, which held the peak near the highest LR that did well, ink had
  25 times the loss, by one network of five (`retired/horizon-kinds-first-deep-falls.jsonl`).
- **Where it is lost**: **waves-sgd** (2.9 times the loss), whose slow ramp does not go as far as a warmed-up network
  bears; **sums** (28 %), which wants three times what is usual; friedman1 (24 %), likewise; **ratings** (12 %), whose
  factors have no layer with inputs, so that nothing is usual; deep-tanh (11 %). In two runs of **equation** training
  broke, and what was tried again made the cost 1.17 and 1.19.
""",
        summed=True,
    ),
    Section(
        "Short runs",
        "headline",
        lambda row: row["task"] in SHORT_TASKS,
        """
Small networks for 250 to 1000 steps: what people try a library on, and where there is money for two to six miniature
runs of 20 steps. The first nine tasks were used to choose how far a peak goes towards what is usual; the others are
held out: seven were written after that, the last five (from formula-sgd on), with SGD, after the rule for SGD was made.
wide-adamw and clusters-adamw were in sight when averaging began at 250 steps, formula-sgd when runs of SGD were no
longer given up as losing. Rivals are three schedules, tuned as above. Not in the mean above.

- **horizon misses its aim**: with Adam (twelve tasks) it is 2 % above the best tuned schedule in the mean, but 18 %
  above it on the six held out, as it was before its search [began at what is
  usual](research-log.md#what-is-usual-in-longer-runs) (`retired/horizon-search-alone.jsonl`): gru and formula gain a
  tenth by that, lstm loses 7 and vit 23 %, which is chance (on eight other seeds it gains 7 %). With SGD it is 26 %
  above it on the first four and **61 % on the last five**: 5 times on formula-sgd and twice on lstm-sgd, whose first
  steps show nothing of what a whole run wants, 5 % below to 19 % above it on the others. Over all 21 it is
  19 % above the best, tuned linear 12 %. Tuned WSD and cosine are 3 and 11 % above it on the first sixteen, where
  horizon has 8 %, and lose a network each on the last five.
- Before the [slow ramp](#small-networks-by-sgd) took the place of miniature runs, those with SGD had 19 and 57 %
  (`retired/horizon-before-slow-ramp.jsonl`): the rule of before had been made on three of these nine, and failed on
  most other small networks.
- Before [three ramps](research-log.md#what-is-left-of-the-spread) looked for the edge, it was 19 % over all 21, 10 % on
  the six with Adam that are held out and 76 % on the last five (`retired/horizon-sharper-mean.jsonl`). Much of that is
  chance: on wide-longer-adamw the same peaks within 2 % end at 1.54 instead of 1.22 of the best schedule, and the usual
  LR, which is 12 % above them and is taken since [deep falls](research-log.md#deep-falls), at 1.74.
- Before the warm-up was [longer](research-log.md#how-long-a-warm-up) where less is known (15 to 30 % instead of 5, but
  for SGD whose peak is found), it was 27 % over all 21 and 9 % on the first sixteen; with Adam 6 %, on the last five
  twice the loss
  (`retired/horizon-short-warm-up.jsonl`).
- Before the search was made for so few steps, the first sixteen had 18 %, the four with SGD 54 % and the last five 2.4
  times the best loss (`retired/horizon-three-first.jsonl`; of the last five no rows are kept). Before peaks went
  half-way to what is usual and runs below 500 steps were averaged, those with Adam had 24 and, held out, 19 %
  ([research log](research-log.md#few-miniature-runs-of-few-steps)).
- **Where it is lost**: with SGD by the peak; on gru-adam, lstm-adam and vit-adamw by
  [averaging](research-log.md#averaging-in-short-runs-again), which costs them 12 to 30 %; on clusters-nadam and
  clusters-sgd by overfitting, since their `evaluate` is too dear for looks.
- **Six runs of tuning** pay here: valleys are steep, since losses end near 0.
""",
        summed=True,
    ),
    Section(
        "Fine-tuning",
        "headline",
        lambda row: row["task"] in FINETUNE_TASKS,
        """
Networks that another task's data have trained go on with little data of their own, most of them with a new head, over
400 to 1250 steps. The first four had a say in the rule for [networks that were trained
before](horizon.md#fine-tuning); the others are held out and were run once it stood (vgg was in sight when a change to
it, which had been tried in between, was taken back). Rivals are two schedules, tuned as above. Not in the mean above.

- **horizon misses its aim**: 3 % above the better of the two in the mean of eleven (5 % on the first four, 1 % on the
  seven held out), level or below it on four, above it by 3 to 5 % on three and by **9 to 11 % on four**.
- **cnn-sgd** and **vgg-sgd** had 1.042 and .976 before the [slow ramp](#small-networks-by-sgd)
  (`retired/horizon-before-slow-ramp.jsonl`), and have 1.10 and 1.05.
- **bert** had stayed at chance (18 % above) before that rule, **transformer** had 1 %, vit and testaments are the same
  with and without it, and **vgg** is 4 % worse by it (`benchmarks/results/peaks/finetune-as-new.jsonl`).
- **testaments**: four runs end 3 to 13 % below the tuned schedules and one, which overfits, at twice the loss.
- **gru**, **mlp** and **autoencoder** have no normalising layers and count as new. Since their search begins at what is
  [usual](horizon.md#what-is-usual), the GRU's peaks are no longer four to eight times too high on one seed of five
  (.997 instead of 1.036); the autoencoder's are four times too low still (1.102 instead of 1.123).
""",
        summed=True,
    ),
    Section(
        "Tables of numbers",
        "headline",
        lambda row: row["task"] in TABLE_TASKS and row["method"] in HEADLINE_METHODS,
        """
Kinds of work on which nothing was ever chosen, and on which **horizon** does worse than above. All four are held out;
they were written when its defaults stood. Not in the mean above.

- **digits-logistic**, a convex problem: 21 % above the best schedule in loss, and the highest accuracy of all. The peak
  is four times too low: where nothing but the optimizer limits, a whole run bears what its miniatures do not.
- **cancer-mlp**: 600 steps are 60 epochs of 341 rows, and any LR but a tiny one overfits within 30 steps. Tuning
  finds the tiny one; horizon goes back to the lowest of its looks, the first of which comes after some 75 steps, and
  ends 12 % above it (a third before its search began at what is [usual](horizon.md#what-is-usual), 80 % by the rule
  before that). The accuracy is
  everybody's. (Before its validation passes were weighed there was no money for looks: 3.6 times the loss.) Fewer
  steps are the better answer.
- **diabetes-mlp** overfits too, but looks bring it within 2 % of the best schedule from a peak ten times or more too
  high. **horizon-plain** is 4 % behind.
- **friedman-mlp**: 6 % above OneCycle, as miniature runs know little about a run that first has to learn the targets'
  mean, and the slow ramp, by which it goes since [deep falls](research-log.md#deep-falls), nothing of the noise; it was
  2 % before (`retired/horizon-before-deep-falls.jsonl`).
- **Prodigy** fails on all four, Schedule-Free at its default LR diverges on one.
""",
    ),
    Section(
        "Methods compared (Section 5)",
        "methods",
        lambda row: row["task"] == "digits-mlp",
        """
Several of these methods take dozens of runs, so the comparison is on the smallest task. Its cost is in runs, where
the paper gives seconds. RTHO and MARTHE begin at the top of the interval, as in the paper; here that is an LR of 1,
far above the best, which does them no favour.

- **Holds**: Algorithm 1 ends below hypergradient descent and MARTHE for a fifteenth and a twentieth of their cost. RTHO
  diverges.
- **Does not hold**: Hyperband, behind in the paper, ends 20 % below Algorithm 1, at eight times its cost; BO with early
  stopping 14 %, at five times. What Hyperband found is to stop early: from .6 to .9 down to a hundredth of that in a
  fifth of the run. ASHA, over the same LRs and decays, finds the like for half of Hyperband's cost.
- **PBT and PB2**, which move the LR while a population trains, end 13 % above Algorithm 1 at four times its cost.
- **horizon** is 11 % below Algorithm 1 in the mean, at half the cost. digits-mlp is one of the tasks on which its
  defaults were chosen.
""",
    ),
    Section(
        "More methods on the same task",
        "headline",
        lambda row: row["task"] == "digits-mlp" and row["method"] not in ABLATIONS,
        """
The columns are those of the headline.

- **horizon** is 5 % below the tuned WSD and 11 to 12 % below the tuned cosine, linear and OneCycle. What ends
  lower (Hyperband, ASHA, BO, Prodigy) has another shape of schedule or another optimizer, which choosing a peak cannot
  find. Schedules, Schedule-Free and horizon have 20 seeds here, the others 3 or
  5.
- **Prodigy**, with nothing to tune, is third, from 3 seeds that differ by 30 %. **D-Adaptation** fails: with SGD it
  takes an LR at which the network dies.
- **CLR** with bounds by the range test equals the tuned cosine for three runs of tuning, but for its 1cycle variant.
  The greedy rule and hypergradient descent end between the tuned cosine and the tuned constant LR.
""",
    ),
    Section(
        "Sensitivity to tau_max (Appendix A.5.2)",
        "tau-max",
        ablated,
        """
Stages grow from 1/40 of the run to tau_max, here 1/10, 1/5 and 2/5 of it; the paper's are 1/34, 1/17 and 1/8.5.

- **Holds**: a shorter tau_max costs more search (on digits-mlp 2.7, 2.4 and 2.1 runs), and none is clearly best.
- **Does not hold**: the paper's three means are within .2 points and its trials within .5. On digits-mlp two seeds in
  five end 1 to 5 points below the others, at any tau_max: the first stage takes the top of the interval on every seed,
  later ones wander over two or three decades, and a run is as good as its last stages happen to be. On fashion-mlp
  6 of 15 networks are dead (10 %), and none reaches the 87.5 % of horizon.
""",
    ),
    Section(
        "Random search in the place of BO (Appendix A.5.4)",
        "random-search",
        ablated,
        """
As many probes, drawn at random. In the paper BO is .1 points ahead (93.96 against 93.87 %).

- **Does not hold**: on digits-mlp BO is .9 points ahead in the mean, which is one seed of five (medians of the loss:
  .0926 and .0933); on fashion-mlp random search is 21 points ahead, because fewer of its networks die (1 of 5 instead
  of 3). Nothing here says that BO is better.
""",
    ),
    Section(
        "Grid search in the place of BO (Appendix A.5.4)",
        "grid-search",
        ablated,
        """
As many probes, evenly spaced on the logarithm. In the paper BO is .3 points ahead (93.96 against 93.66 %).

- **Undecided**: on digits-mlp the grid is .6 points ahead in accuracy and 3 % behind in loss, on fashion-mlp 10 points
  behind; all of it is within the spread.
""",
    ),
    Section(
        "Algorithm 1 with one thing changed",
        "ablation",
        ablated,
        """
The median is beside the mean because a seed on which the network dies makes the mean. fashion-mlp was run with the
variants of the paper's own tables and two more.

- **The forecast** helps on digits-mlp (by the last loss of a probe instead, the median is a third higher) and **ruins**
  fashion-mlp: there choosing by the last loss ends at 84 % on every seed, as printed three of five die. Forecasts of
  stages ten to a hundred times shorter than the paper's are the weak point.
- **Exploration matters**: at kappa 1 the median is a third higher; kappa 10 and the default of 1000 tie. **The
  posterior's winner does not**: taking the best forecast as it is gives the same loss.
- **Switches one at a time do not help** on digits-mlp. Replayed batches let one run die: its last stage, of 50 steps,
  chose the highest LR. Bounded forecasts and a limit of 4 on moves narrow nothing by themselves; an anneal alone
  begins at whatever LR was chosen last.
- **Together they do**: `preset="practical"` has Algorithm 1's loss on digits-mlp with half its spread, keeps every
  network alive on fashion-mlp, and costs 1.5 to 1.6 runs instead of 2.2 to 2.4. On fashion-mlp it is still 17 % behind
  the tuned cosine (.358).
""",
    ),
    Section(
        "Hypergradient descent over its two LRs (Appendix A.5.1)",
        "hypergradient",
        lambda row: row["method"] == "hypergradient",
        """
Accuracy on the tuning seed.

- **Holds**: what it ends with depends on the hypergradient LR, hardly on the LR it begins with, unless that is good
  already: then the LR barely moves, and 36 runs of tuning have found a constant LR. What it chose is
  18 % behind the tuned cosine on other seeds.
- **Does not hold**: in the paper hypergradient LRs of .01 and above ruin nearly every training. This perceptron
  survives them all.
""",
    ),
    Section(
        "Forecasters (Appendix A.2)",
        "forecasters",
        lambda row: False,
        """
Six constant LRs across the interval, two seeds, digits-mlp and fashion-mlp: 1000 steps each, forecast from the first
100. The paper shows two series and no numbers. Times are of a busy machine.

- **Holds**: the exponential is among the most accurate in the median, and a hundred times cheaper than Holt-Winters
  and ARIMA. Singular spectrum analysis and the power law are out of the question.
- **Does not hold**: what Algorithm 1 needs is the order of the LRs, and there the last value (.89) is far better than
  the paper's exponential (.47), which forecasts 7 of the 24 below zero and one at five times a loss that blew up
  (hence the squared error). Bounding it (ours) repairs the order (.84), not the error.
""",
    ),
    Section(
        "Variability over seeds (Appendix A.5.2)",
        "variability",
        lambda row: row["method"] in ("horizon", "paper", "cosine") and row["task"] in HEADLINE_TASKS,
        """
Cosine is tuned on another seed. Older rows have no accuracy; where one of a method's is missing, losses are shown.

- **Holds** for **horizon** as far as the size goes on most tasks; not on BERT, whose loss depends on the peak more than
  elsewhere.
- **Does not hold** for Algorithm 1: the paper's ten trials differ by .14 points; here five differ by .8 where it works
  (digits-mlp), and on fashion-mlp and digits-cnn three of five end with a dead network.
""",
    ),
)


def render() -> str:
    """The page's text."""
    rows = [row for path in sorted(RESULTS.glob("*.jsonl")) for row in read_rows(path)]
    shown = [row for row in rows if row["task"] in HEADLINE_TASKS and row["method"] in HEADLINE_METHODS]
    shown.sort(key=lambda row: HEADLINE_TASKS.index(row["task"]))
    parts = [HEAD + headline(score(shown)) + TAIL]
    for section in SECTIONS:
        if section.table == "forecasters":  # takes seconds and its figures depend on statsmodels: kept as it was made
            tables = (RESULTS / "tables" / "forecasters.md").read_text()
        else:
            made = TABLES[section.table]([row for row in rows if section.of(row)])
            tables = FORMATS["markdown"]([table for table in made if section.summed or table.title != "Over tasks"])
        parts.append(f"## {section.heading}\n\n{section.words.strip()}\n\n{tables}")
    return "\n".join([*parts, END])


if __name__ == "__main__":
    PAGE.write_text(render())
