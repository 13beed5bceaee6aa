module forward

go 1.18
