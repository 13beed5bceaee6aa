module libmoe/moe

go 1.19

require github.com/ebitengine/purego v0.9.1
