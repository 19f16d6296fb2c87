"""Twenty topics of news items, and the perplexity of held-out halves of others. Reuters sample."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import json

    import numpy as np

    import jaxmf as mf

    news, generator = mf.datasets.reuters(), np.random.default_rng(0)
    counts = news.counts.toarray()
    texts = [np.repeat(news.vocabulary, counts[row]).tolist() for row in generator.permutation(395)]
    shuffled = [generator.permutation(words).tolist() for words in texts[316:]]
    halves = [(words[::2], words[1::2]) for words in shuffled]
    (folder / "docs.json").write_text(json.dumps({"train": texts[:316], "halves": halves}))


def jaxmf(folder: Path) -> dict[str, float]:
    import json

    import numpy as np

    import jaxmf as mf

    texts = json.loads((folder / "docs.json").read_text())
    tokens = mf.Tokens.from_lists(texts["train"])
    post = mf.sample(
        mf.LDA(20), tokens, num_warmup=500, num_samples=50, thin=10, num_chains=1, seed=0
    )
    new = mf.Tokens.from_lists([a + b for a, b in texts["halves"]])
    score = post.document_completion(new, unknown="drop")
    return {"perplexity": float(np.exp(-score.mean))}


def tomotopy(folder: Path) -> dict[str, float]:
    import json

    import numpy as np
    import tomotopy as tp

    texts = json.loads((folder / "docs.json").read_text())
    model = tp.LDAModel(k=20, seed=0)
    for words in texts["train"]:
        model.add_doc(words)
    model.train(1000, workers=1)
    position = {word: n for n, word in enumerate(model.used_vocabs)}
    phi = np.array([model.get_topic_word_dist(k) for k in range(20)])
    scores = []
    for first, second in texts["halves"]:
        theta, _ = model.infer(model.make_doc([word for word in first if word in position]))
        words = [position[word] for word in second if word in position]
        scores += list(np.log(np.asarray(theta) @ phi[:, words]))
    return {"perplexity": float(np.exp(-np.mean(scores)))}


def gensim(folder: Path) -> dict[str, float]:
    import json

    import numpy as np
    from gensim.corpora import Dictionary
    from gensim.models import LdaModel

    texts = json.loads((folder / "docs.json").read_text())
    dictionary = Dictionary(texts["train"])
    corpus = [dictionary.doc2bow(words) for words in texts["train"]]
    model = LdaModel(
        corpus, num_topics=20, id2word=dictionary, passes=20, alpha="auto", random_state=0
    )
    phi = model.get_topics()
    scores = []
    for first, second in texts["halves"]:
        theta = np.zeros(20)
        for k, p in model.get_document_topics(dictionary.doc2bow(first), minimum_probability=0):
            theta[k] = p
        words = [n for n in dictionary.doc2idx(second) if n >= 0]
        scores += list(np.log(theta / theta.sum() @ phi[:, words]))
    return {"perplexity": float(np.exp(-np.mean(scores)))}


if __name__ == "__main__":
    run("topics", prepare, ("jaxmf", "tomotopy", "gensim"))
