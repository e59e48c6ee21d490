"""Words that mean one thing in the names of layers."""

_MEANINGS = {
    "encoder": "enc encode down contracting contract analysis",
    "decoder": "dec decode up upsample expanding expand synthesis",
    "conv": "convolution cnn convolve cv",
    "linear": "fc dense lin affine fully",
    "norm": "bn ln gn batchnorm layernorm groupnorm normalization normalisation normalize",
    "head": "classifier out output final last logits readout predictions proj projection wo",
    "middle": "mid bottleneck bridge bottom centre center",
    "stem": "inp input first entry",
    "attention": "attn mha selfattention",
    "mlp": "ffn ff feedforward",
    "query": "q wq",
    "key": "k wk",
    "value": "v wv",
    "embedding": "embed emb wte token tok embeddings",
    "position": "pos wpe positional",
    "block": "blocks layers layer stage stages h",
    "shortcut": "downsample skip residual identity",
    "upconv": "upconvolution deconv deconvolution transposed",
    "recurrent": "rnn lstm gru cell nsteplstm",
}
SYNONYMS = {
    word: meaning for meaning, words in _MEANINGS.items() for word in words.split()
}
