module github.com/seed-126c5d8a/fini/packaging

go 1.26.0

replace github.com/seed-126c5d8a/fini => ../
