from porter.cli.app import main

main()
