"""The suites of benchmarks in the order of their page, with what each measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Suite:
    title: str
    about: str  # what is measured and what must hold


@dataclass(frozen=True, kw_only=True)
class Part:
    title: str
    about: str
    suites: dict[str, Suite]


PARTS = (
    Part(
        title="One job",
        about="",
        suites={
            "end-to-end": Suite(
                title="From the command to the kernel",
                about="The commands of the README in a fresh clone, with wall time from the call "
                "to the promoted kernel.",
            )
        },
    ),
    Part(
        title="Kernels on CPUs",
        about="`python -m benchmarks.kernels -o FOLDER` tunes each workload of a suite, then races "
        "its kernel against NumPy and PyTorch. The suites are files in `benchmarks/kernels`. "
        "A ratio above one means that the kernel is faster. See "
        "[how kernels are measured](#how-kernels-are-measured) for the other columns.",
        suites={
            "kernels": Suite(
                title="Deep learning workloads",
                about="`suite.json`: sixteen workloads of deep learning, most of them large enough "
                "for a library to do well. One thread.",
            ),
            "kernels-metaschedule": Suite(
                title="Beside MetaSchedule",
                about="The same sixteen workloads, also tuned by TVM's MetaSchedule with the same "
                "number of trials, instruction set and threads. Its object code is linked with the "
                "same linker and raced in the same rounds.",
            ),
            "kernels-two-threads": Suite(
                title="Two threads", about="The same sixteen workloads with `--threads 2`."
            ),
            "kernels-constant-weights": Suite(
                title="Constant weights",
                about="`prepacked.json`: weights are constant, and oneDNN packs them as it likes. "
                "Packing is not timed on either side.",
            ),
            "kernels-narrow": Suite(
                title="Narrow types",
                about="`narrow.json`: products, layers and a convolution of bfloat16 and 8-bit "
                "integers.",
            ),
            "kernels-fast": Suite(
                title="Fast numerics",
                about="`fast.json`: products, layers and convolutions under `numerics=fast`.",
            ),
            "kernels-wider": Suite(
                title="Wider suite",
                about="`wider.json`: other layouts, strides, dtypes, operators and extents, chosen "
                "by role.",
            ),
            "kernels-unseen": Suite(
                title="Unseen workloads",
                about="`unseen.json`: workloads that were written down before any of them was run.",
            ),
            "kernels-large": Suite(
                title="Large outputs",
                about="`large.json`: outputs longer than a second-level cache.",
            ),
            "kernels-few": Suite(
                title="Few points and two threads",
                about="`few.json`: reductions to few points, for `--threads 2`.",
            ),
            "decode": Suite(
                title="Weights of few bits",
                about="`python -m benchmarks.decode -o FILE`: one row times the weights of layers "
                "of Llama 2 7B, beside the memory's bandwidth, ONNX Runtime and PyTorch.",
            ),
            "fusion": Suite(
                title="Chains as one kernel",
                about="`python -m benchmarks.fusion -o FILE`: groups placed in the tiles of their "
                "readers, beside our own kernels of the same groups one after the other.",
            ),
            "attention": Suite(
                title="Attention",
                about="`python -m benchmarks.attention -o FILE`: 12 heads, a kernel tuned for each "
                "row, beside PyTorch's `scaled_dot_product_attention`, the same compiled by "
                "inductor, FlexAttention and OpenVINO. `--decode`: one query before a cache.",
            ),
            "sparse": Suite(
                title="Sparse and gathered work",
                about="`python -m benchmarks.sparse -o FOLDER`: kernels of patterns that vary "
                "between calls, beside SciPy and PyTorch on the same arrays. Indices are checked "
                "in each call of a kernel.",
            ),
            "csr": Suite(
                title="Sparse products by MKL and taco",
                about="`python -m benchmarks.sparse -o FOLDER --mkl LIBRARY --taco FOLDER`: the "
                "products above beside MKL's of a handle that was optimized before, and kernels "
                "that taco wrote (`benchmarks/csr_libraries.py` says how).",
            ),
            "densities": Suite(
                title="From which density on sparse kernels pay",
                about="`python -m benchmarks.sparse -o FOLDER --densities`: kernels of uniform "
                "patterns beside our own dense kernels of the same products. The last column is "
                "where the times are equal, on a straight line between their logarithms.",
            ),
            "patterns": Suite(
                title="Patterns that others publish",
                about="`python -m benchmarks.sparse --suite benchmarks/kernels/patterns.json -o "
                "FOLDER`: patterns drawn with the extents, densities and row lengths of LIBXSMM's "
                "finite-element operators and of matrices that packages ship, beside SciPy and "
                "PyTorch on the same arrays.",
            ),
            "slide": Suite(
                title="A classifier of many classes",
                about="`python -m examples.slide.train` trains networks of which only the output "
                "layer differs ([the guide](../how-to/many-classes.md)). Stages were timed by "
                "wrapping the example's functions; rows that are fetched ahead by calling kernels "
                "of the space in turn, each after other data.",
            ),
            "expressions": Suite(
                title="Random expressions",
                about="`python -m benchmarks.expressions -o FOLDER` draws random programs with the "
                "generator of the property tests, and tunes and races each as above, with 64 "
                "trials for either tuner. Extents are up to 97; `--small` uses the generator's "
                "own. It exits with 1 where a program has no verified kernel or one slower than "
                "the default schedule. `--count` and `--seed` choose the programs.",
            ),
        },
    ),
    Part(
        title="Kernels on GPUs",
        about="`python -m benchmarks.gpu -o FOLDER` races kernels against cuBLAS, cuDNN, PyTorch "
        "and `torch.compile`. See [the races](../design-notes/0020-gpu-races.md) for how they work "
        "and [CUDA](../explanation/cuda.md) for the kernels.",
        suites={
            "gpu": Suite(title="GPU races", about="Six workloads in float32 and float16."),
            "gpu-limits": Suite(
                title="Limits of a GPU",
                about="What the product measures of a device, beside its datasheet and PyTorch's "
                "products. See [how limits are measured](../explanation/measurement.md#of-a-gpu).",
            ),
            "gpu-fast": Suite(
                title="GPU races under fast numerics",
                about="float32 by three products of bfloat16 on tensor cores.",
            ),
        },
    ),
    Part(
        title="Models, calls and portfolios",
        about="",
        suites={
            "networks": Suite(
                title="Networks that people use",
                about="`python -m benchmarks.models -o FOLDER` builds published architectures "
                "with `transformers`, takes each through a door (the file of "
                "`torch.onnx.export`, or the program of `torch.export`), tunes it by the "
                "default budget of a command, holds the library against PyTorch on three "
                "inputs, and races it against ONNX Runtime, OpenVINO, PyTorch and inductor "
                "(max-autotune), in turn on the same cores. A sample begins when no thread of the "
                "one before spins any more.",
            ),
            "torch": Suite(
                title="Networks in PyTorch",
                about="`python -m benchmarks.torch.inference` and `benchmarks.torch.training` "
                'compile networks with `torch.compile(backend="tuner")` and time calls or '
                "steps (forward, backward, Adam) in turn with eager PyTorch and inductor. A first "
                "fast call is that of a new process whose caches earlier ones have filled.",
            ),
            "models": Suite(
                title="Small models",
                about="Three small models with random weights, like ResNet, MobileNet and BERT. "
                "Each is tuned by `tuner tune MODEL.onnx` for `--seconds` of search in all, then "
                "raced against ONNX Runtime on the same core. Both are called without copies.",
            ),
            "calls": Suite(
                title="Call overhead",
                about="A function that does nothing, called from C through the exported library "
                "and directly. A launch of two threads that do nothing, back to back and after "
                "3 ms of sleep. A race of an exported library against the promoted artifact.",
            ),
            "portfolios": Suite(
                title="Portfolios",
                about="The members that serve `matmul:M=1..512,N=1024,K=1024` against kernels "
                "tuned for 40 random M with the same budget. The run may be stopped and goes on "
                "where it was; `--slot SECONDS` stops it.",
            ),
        },
    ),
    Part(
        title="Search",
        about="",
        suites={
            "search": Suite(
                title="Search quality",
                about="Trials until a config among the fastest 0.5% of a recorded table, median "
                "over seeds, by `tuner replay`. `python -m benchmarks.search.record SPEC…` records "
                "a table: a sub-lattice of the space with at least 1,600 different descriptions "
                "(`--configs`), built and timed as a job would. `make tables` records eight "
                "workloads into `tests/tables/large` and parts of eighteen others into "
                "`tests/tables/parts`.",
            ),
            "machines": Suite(
                title="History of another target",
                about="Trials until a config is within 5% of a recorded table's best, median over "
                "seeds with quartiles, by `python -m benchmarks.search.machines TABLE…`: searches "
                "by annealing without a history, and with the table of the other target as their "
                "history.",
            ),
            "estimates": Suite(
                title="Answers before tuning",
                about="`python -m benchmarks.oracle` draws workloads of eight operators, searches "
                "them and races what was found on a quiet machine. Each kernel is left out of what "
                "the predictor learns; the first candidate of the searches that were longest is an "
                "answer without a trial, and its loss is that to the best known. A network's sum "
                "is that of its kernels, each timed alone.",
            ),
        },
    ),
    Part(
        title="Fleet",
        about="These run the real fleet on one machine. `make test-long` runs chaos with 200 "
        "trials and the soak with 6,000, of which 3,000 warm up.",
        suites={
            "throughput": Suite(
                title="Throughput",
                about="One lane, one builder, matmul 512 as annealing proposes it. Must hold: "
                "5 trials a second, a lane held for 100 ms on average and idle for at most 1% of "
                "the time while a built candidate waits.",
            ),
            "timing": Suite(
                title="Timing beside a busy builder",
                about="Trials with the builder flat out and idle, in turn. Must hold for the "
                "compute-bound kernel: medians within 1.03, coefficient of variation at most 3%.",
            ),
            "isolation": Suite(
                title="Isolation",
                about="The same kernels at each level of isolation, and without any.",
            ),
            "chaos": Suite(
                title="Kills",
                about="A worker is killed every 5 s, calls are lost, and Ray's node is killed "
                "twice. Must hold: every trial recorded, none twice, everything given back within "
                "60 s.",
            ),
            "soak": Suite(
                title="Growth of memory",
                about="Trials that are next to nothing, through the real fleet. Must hold: less "
                "than 1 KiB a trial in every process; descriptors and zombies flat.",
            ),
            "sharing-simulated": Suite(
                title="Sharing, simulated",
                about="Three jobs of different size that come together, under each "
                "[policy](../explanation/fleet.md#several-jobs), on a virtual clock. Fairness is "
                "Jain's index of the jobs' lane time until the first has ended (1: equal; 0.33: "
                "one job had everything). Completion is the time from their coming to a job's end. "
                "`fair` must be fairest, `srtf` have the shortest mean, `pack` keep most cores "
                "in use.",
            ),
            "sharing": Suite(
                title="Sharing on a real fleet",
                about="The orchestrator serves three jobs on one machine, promotions included. A "
                "race is lane time, from whose end a change of job counts.",
            ),
        },
    ),
    Part(
        title="Service",
        about="",
        suites={
            "service-load": Suite(
                title="The service under load",
                about="A database of 200,000 promoted kernels and 1,000,000 trials. Lookups are "
                "sent at an open-loop rate: latency counts from when a request was due. Rates rise "
                "by 15% until the 99th percentile is above 15 ms. 100 event streams over 20 jobs "
                "get 40 events a second together, timed from commit to arrival. `--kernels`, "
                "`--trials` and `--rates` set the sizes; `--db` keeps the database.",
            ),
            "service-kills": Suite(
                title="The service killed",
                about="`tuner serve` under two clients is ended by `kill -9` within 3 s, by turns "
                "alone or with its orchestrator and workers. Before one kill in four a worker has "
                "recorded a trial. The clients' log of acknowledged requests must match the "
                "database. `--folder` keeps the state, so that a run may be taken in pieces; "
                "`--db` takes a PostgreSQL database.",
            ),
            "orchestrators": Suite(
                title="Two orchestrators",
                about="Two orchestrators share 50 jobs on one PostgreSQL; one of them is killed. "
                "No trial may be lost or doubled, and every end is announced once.",
            ),
        },
    ),
)
SUITES = {key: suite for part in PARTS for key, suite in part.suites.items()}
