module libmoe/moe

go 1.19
