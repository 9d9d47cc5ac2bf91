module example.com/fini

go 1.21
